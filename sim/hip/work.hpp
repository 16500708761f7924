#pragma once
#include <hip/hip_runtime_api.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "machine/scheduler.hpp"

namespace fusewire::sim {

struct module_source;

/// A kernel by its handle on the host: the stub's address, or a hipFunction_t.
struct function {
  module_source* source = nullptr;
  std::string name;
  int device = -1;  // a hipFunction_t belongs to one device; -1: the device of the stream
};

struct kernel_work {
  function const* what = nullptr;
  u32 grid[3] = {}, block[3] = {};
  u32 lds = 0;                // dynamic, bytes
  std::vector<u8> arguments;  // the explicit part of the kernel's argument segment
};
struct copy_work {
  void* to = nullptr;
  void const* from = nullptr;
  u64 to_pitch = 0, from_pitch = 0, width = 0, height = 1;  // bytes, rows
  std::shared_ptr<std::vector<u8>> staged;                  // owns `from` when the caller may reuse its memory
};
struct fill_work {
  void* to = nullptr;
  u64 pitch = 0, width = 0, height = 1;  // bytes, elements, rows
  u32 value = 0, element = 1;            // element: bytes
};
struct host_work {
  std::function<void()> call;
};
struct event_state {
  bool done = false;
  int device = 0;  // of the stream that recorded it
  u64 cycles = 0;
  order known;  // with --races: what came before it
};
struct record_work {
  std::shared_ptr<event_state> state;
};
struct wait_work {
  std::shared_ptr<event_state> state;
};
using work = std::variant<std::monostate, kernel_work, copy_work, fill_work, host_work, record_work, wait_work>;

struct work_node {
  work what;
  std::vector<u32> after;  // indices of nodes that come first
};
using work_list = std::vector<work_node>;

/// One entry of a stream: a single piece of work, or a graph.
struct task {
  std::shared_ptr<work_list const> nodes;
  u64 sequence = 0;  // over all streams
  bool graph = false;
  u64 issued = 0;         // with a clock: the host's time when it was enqueued
  std::vector<u64> ends;  // with a clock: of each node that is done
  bool started = false;
  order host;  // with --races: what the host had waited for when it was enqueued
  std::vector<bool> done;
  std::vector<std::shared_ptr<kernel_launch>> launches;  // per node, null until launched
  u32 left = 0;
};

}  // namespace fusewire::sim
