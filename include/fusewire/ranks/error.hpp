// Errors of the host API. They are thrown before anything is launched, and say which value was wrong and what was
// expected.
#pragma once
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Base of all exceptions of fusewire.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An argument that cannot be accepted.
struct bad_argument : error {
  using error::error;
};
/// The symmetric heap or a channel is too small.
struct out_of_space : error {
  using error::error;
};
/// A call of the HIP (CUDA) runtime failed.
struct runtime_failure : error {
  using error::error;
};
/// Ranks called a collective with different arguments, or one of them failed.
struct rank_mismatch : error {
  using error::error;
};
/// Another rank failed, and its error says why.
struct peer_failed : rank_mismatch {
  using rank_mismatch::rank_mismatch;
};
/// Ranks that are processes did not find each other.
struct bootstrap_failed : error {
  using error::error;
};
/// A wait inside a kernel lasted longer than its limit; results since the last check are invalid.
struct wait_timeout : error {
  using error::error;
};
/// A kernel ended although not every block of it had called channel_epoch::end().
struct launch_unfinished : error {
  using error::error;
};
/// Another rank aborted first, and its error says why.
struct launch_abandoned : wait_timeout {
  using wait_timeout::wait_timeout;
};

/// The values, one after the other, as text.
template <class... Parts>
std::string text(Parts const&... parts) {
  std::ostringstream s;
  (s << ... << parts);
  return s.str();
}

/// Throws E unless `ok`. The message ends with the caller's file and line.
template <class E = bad_argument, class... Parts>
void require(bool ok, std::source_location where, Parts const&... parts) {
  if (!ok) throw E(text(parts..., "  [", where.file_name(), ":", where.line(), "]"));
}

/// For calls that free something, where a failure cannot be reported. Clears the error, so that it is not taken for one
/// of the next call. An earlier error, which somebody else has yet to fetch, stays.
inline void ignore_hip(hipError_t e) {
  if (e != hipSuccess && hipPeekAtLastError() == e) (void)hipGetLastError();
}

/// Throws runtime_failure unless the call succeeded. `what` is the call, as text.
inline void check_hip(hipError_t e, char const* what, std::source_location where = std::source_location::current()) {
  if (e == hipSuccess) return;
  ignore_hip(e);  // a failure that has been reported is not reported again by the next call
  throw runtime_failure(text(what, ": ", hipGetErrorName(e), " (", hipGetErrorString(e), ")  [", where.file_name(), ":",
                             where.line(), "]"));
}

}  // namespace fusewire
