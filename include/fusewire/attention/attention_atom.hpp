// The attention of an architecture: attention_atom<T>.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/attention/sm90/attention_atom.hpp>
#else
#include <fusewire/attention/gfx942/attention_atom.hpp>
#endif
