// All host functions, for the one source of a program that is compiled with FUSEWIRE_HOST_LIBRARY; see
// core/host_code.hpp.
#pragma once
#include <fusewire/launch/channel.ipp>
#include <fusewire/launch/launch.ipp>
#include <fusewire/launch/operator_memory.ipp>
#include <fusewire/launch/ll_buffer.ipp>
#include <fusewire/memory/heap.ipp>
#include <fusewire/nodes/network.ipp>
#include <fusewire/nodes/nodes_channel.ipp>
#include <fusewire/ranks/make_world.ipp>
#include <fusewire/ranks/place.ipp>
#include <fusewire/ranks/run.ipp>
#include <fusewire/ranks/run_local.ipp>
#include <fusewire/ranks/world.ipp>
