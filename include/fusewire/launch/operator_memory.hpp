// Device memory of one operator.
#pragma once
#include <cstddef>
#include <memory>

#include <fusewire/core/host_code.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Memory on the world's device, for one operator, whose launches do not overlap. It may end after the world.
class operator_memory {
 public:
  /// Allocates; the values are undefined. `what`, in messages. Fails: runtime_failure.
  operator_memory(world const& w, std::size_t bytes, char const* what, std::source_location where);
  /// Where it begins.
  void* get() const { return memory_.get(); }

 private:
  struct release {
    std::shared_ptr<launch_order> launches;
    void operator()(void* p) const;
  };
  std::unique_ptr<void, release> memory_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/launch/operator_memory.ipp>
#endif
