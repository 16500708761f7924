// An epilogue whose kernels are compiled elsewhere, from the device headers alone: while the program runs, say.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// What such a kernel gets as its epilogue.
struct epilogue_bytes {
  alignas(8) std::byte bytes[128];  // an object of the epilogue's own type, and what is left after it
};

/// Passed to a call in place of an epilogue. The call's plan is that of one without an epilogue; its kernel is found
/// when the plan is known. It is the same on every rank.
struct compiled_epilogue {
  /// The address of &KERNEL<T, M, E>, where it was compiled with the headers of this version: of "gemm_rs_kernel", say,
  /// for the mainloop M that the second text names, and E, which has the bytes of `value`.
  std::function<void const*(std::string const& kernel, std::string const& mainloop)> find;
  epilogue_bytes value;  // what the kernel gets
};

/// What a call takes as its epilogue.
template <class E>
concept call_epilogue = epilogue<E> || std::is_same_v<E, compiled_epilogue>;

namespace detail {

/// The epilogue for which a call is planned.
template <class E>
using planned_epilogue = std::conditional_t<std::is_same_v<E, compiled_epilogue>, identity, E>;

/// The type's name, as a source has it.
template <class M>
std::string source_name() {
  std::string_view const f = __PRETTY_FUNCTION__;
  std::size_t const at = f.find("M = ") + 4;
  return std::string(f.substr(at, f.find_first_of(";]", at) - at));
}

/// kernel_of's kernels, but with another epilogue.
template <class Kernel>
struct compiled_kernels {
  compiled_epilogue const& e;

  template <class M>
  auto operator()() const {
    void const* const kernel = e.find(Kernel::name, source_name<M>());
    require(kernel != nullptr, std::source_location::current(), "an epilogue that is compiled elsewhere: no ",
            Kernel::name, " for ", source_name<M>());
    return of_type(Kernel{}.template operator()<M>(), kernel);
  }

 private:
  template <class A, class X>
  static auto of_type(void (*)(A, X, identity), void const* kernel) {
    return reinterpret_cast<void (*)(A, X, epilogue_bytes)>(const_cast<void*>(kernel));
  }
  template <class Ch, class A, class X>
  static auto of_type(void (*)(Ch, A, X, identity), void const* kernel) {
    return reinterpret_cast<void (*)(Ch, A, X, epilogue_bytes)>(const_cast<void*>(kernel));
  }
};

/// The kernels to launch for a call that was planned with kernel_of's, and what they get as their epilogue.
template <class Kernel, class E>
auto kernels_to_launch(Kernel const& kernel_of, E const& e) {
  if constexpr (std::is_same_v<E, compiled_epilogue>) return compiled_kernels<Kernel>{e};
  else return kernel_of;
}
template <class E>
E const& epilogue_to_launch(E const& e) {
  return e;
}
inline epilogue_bytes const& epilogue_to_launch(compiled_epilogue const& e) { return e.value; }

}  // namespace detail
}  // namespace fusewire
