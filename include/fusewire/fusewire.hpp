// Everything to write kernels with. Operators have headers of their own in kernels/, and what they are made of in
// tile/.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/core/types.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/atomic.hpp>
#include <fusewire/device/barrier.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/device/flag.hpp>
#include <fusewire/device/memory.hpp>
#include <fusewire/device/stamped.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/runtime/channel.hpp>
#include <fusewire/runtime/launch.hpp>
#include <fusewire/runtime/run.hpp>
#include <fusewire/version.hpp>
