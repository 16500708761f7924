// Bodies of operator_memory.hpp.
#pragma once
#include <fusewire/launch/operator_memory.hpp>
#include <fusewire/ranks/launch_order.hpp>
#include <fusewire/ranks/thread_state.hpp>

namespace fusewire {

FUSEWIRE_HOST operator_memory::operator_memory(world const& w, std::size_t bytes, char const* what,
                                               std::source_location where)
    : memory_(nullptr, release{w.launches()}) {
  detail::current_device const device(w.device(), where);
  detail::outside_captures const allocating;
  void* p = nullptr;
  check_hip(hipMalloc(&p, bytes), text("hipMalloc(", what, ")").c_str(), where);
  memory_.reset(p);
}
FUSEWIRE_HOST void operator_memory::release::operator()(void* p) const {
  launches->forget_memory(p);
  ignore_hip(hipFree(p));
}

}  // namespace fusewire
