// Everything to write kernels with. Operators have their own headers in ops/ (all of them: operators.hpp), and what
// they are made of in gemm/, attention/ and comm/.
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
#include <fusewire/device/ll.hpp>
#include <fusewire/device/ll_buffer_view.hpp>
#include <fusewire/device/ticket.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/memory/requirements.hpp>
#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/launch.hpp>
#include <fusewire/ranks/make_world.hpp>
#include <fusewire/ranks/run.hpp>
#include <fusewire/launch/ll_buffer.hpp>
#include <fusewire/device/trace_span.hpp>
#include <fusewire/version.hpp>
