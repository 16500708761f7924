// What is genuinely different per architecture, behind one name each: mma_atom<T>, attention_atom<T>.
#pragma once
#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/tile/attention_sm90.hpp>
#include <fusewire/tile/mma_sm90.hpp>
#else
#include <fusewire/tile/attention_gfx942.hpp>
#include <fusewire/tile/mma_gfx942.hpp>
#endif
