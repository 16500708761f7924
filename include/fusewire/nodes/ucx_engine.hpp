// An engine over UCX, in a library of its own: CMake's target fusewire::ucx, which links UCX.
#pragma once
#include <memory>
#include <source_location>

#include <fusewire/nodes/engine.hpp>

namespace fusewire {

/// Options of a UCX engine. The rest is UCX's own, by its environment: UCX_TLS, UCX_NET_DEVICES and others.
struct ucx_options {
  /// Asks UCX to tell when a peer dies. Transports of shared memory refuse to connect then; without it a dead peer is
  /// noticed by the bootstrap, or by the limit of a wait
  bool peer_failures = true;
};

/// Makes one. Puts to one peer are ordered by UCX's fence, so the version must order all lanes of an endpoint:
/// from 1.16 on, where it makes them by itself where several lanes were used (UCX_FENCE_MODE = ep_based, which this
/// sets). Fails: runtime_failure where UCX fails, or is older than 1.16 and may use several lanes: it may use one where
/// UCX_TLS names one transport besides self, and UCX_MAX_RMA_LANES is 1 or not set, or where UCX_TLS is tcp alone.
std::unique_ptr<engine> make_ucx_engine(ucx_options const& o = {},
                                        std::source_location where = std::source_location::current());

/// The version of UCX that the program runs with, as "1.16.0".
std::string ucx_version();

}  // namespace fusewire
