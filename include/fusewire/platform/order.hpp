// Memory order and scope, with the names of std::memory_order. The platform headers translate them.
#pragma once

namespace fusewire {

/// What is ordered with the access: nothing; later accesses after it; earlier ones before it; both.
enum class order { relaxed, acquire, release, acq_rel };

/// Whose accesses are ordered: the threads of one block, of one device, or of all devices and the host.
enum class scope { block, device, system };

}  // namespace fusewire
