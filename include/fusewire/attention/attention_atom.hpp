// The attention of an architecture: attention_atom<T>, and decode_policy_for(head_dim).
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/attention/sm90/attention_atom.hpp>
#include <fusewire/attention/sm90/decode_policy.hpp>
#else
#include <fusewire/attention/gfx942/attention_atom.hpp>
#include <fusewire/attention/gfx942/decode_policy.hpp>
#endif
