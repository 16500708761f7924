// roctx, which is looked for when the first range is requested: programs are not linked with it.
#pragma once
#include <dlfcn.h>

namespace fusewire::platform {

/// Why has_ranges() is false
inline constexpr char const* why_no_ranges = "neither librocprofiler-sdk-roctx.so nor libroctx64.so is found";

namespace detail {
struct roctx {
  int (*push)(char const*) = nullptr;
  int (*pop)() = nullptr;

  static roctx const& get() {
    static roctx const one = [] {
      roctx r;
      for (char const* name :
           {"librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "libroctx64.so.4", "libroctx64.so"})
        if (void* const library = dlopen(name, RTLD_LAZY | RTLD_GLOBAL)) {
          r.push = reinterpret_cast<decltype(r.push)>(dlsym(library, "roctxRangePushA"));
          r.pop = reinterpret_cast<decltype(r.pop)>(dlsym(library, "roctxRangePop"));
          if (r.push && r.pop) return r;
        }
      return roctx{};
    }();
    return one;
  }
};
}  // namespace detail

/// Whether push_range() marks anything.
inline bool has_ranges() { return detail::roctx::get().push != nullptr; }
/// Begins a range on this thread. Requires: has_ranges().
inline void push_range(char const* name) { detail::roctx::get().push(name); }
/// Ends the range that this thread began last.
inline void pop_range() { detail::roctx::get().pop(); }

}  // namespace fusewire::platform
