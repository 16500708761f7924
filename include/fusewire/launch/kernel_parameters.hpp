// What a kernel takes, as values: for programs that compile it while they run, and then have its address alone.
#pragma once
#include <type_traits>

#include <fusewire/core/matrix.hpp>
#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// How a parameter of a kernel is passed: a number; the address of elements; a matrix of them.
enum class parameter_form : int { number, pointer, matrix, end };

/// A parameter of a kernel, after its channel.
struct kernel_parameter {
  parameter_form form;  // how it is passed
  int is_const;         // whether the kernel only reads the elements; a number is
  char const* element;  // the type: "float32", "int64", "bfloat16"; "" of a pointer to any other type
};

namespace detail {

template <class T>
constexpr char const* element_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  else if constexpr (std::is_same_v<T, bf16>) return "bfloat16";
  else if constexpr (std::is_same_v<T, f16>) return "float16";
  else if constexpr (std::is_same_v<T, float>) return "float32";
  else if constexpr (std::is_same_v<T, double>) return "float64";
  else if constexpr (std::is_integral_v<T>) {
    constexpr char const* names[2][4] = {{"uint8", "uint16", "uint32", "uint64"}, {"int8", "int16", "int32", "int64"}};
    return names[std::is_signed_v<T>][sizeof(T) == 8 ? 3 : sizeof(T) / 2];
  } else return "";
}

template <class T>
struct parameter_of {
  static_assert(std::is_arithmetic_v<T>, "a kernel takes a channel_view, then numbers, pointers and matrix<T>");
  static constexpr kernel_parameter value{parameter_form::number, true, element_name<T>()};
};
template <class T>
struct parameter_of<T*> {
  static constexpr kernel_parameter value{parameter_form::pointer, std::is_const_v<T>,
                                          element_name<std::remove_cv_t<T>>()};
};
template <class T>
struct parameter_of<matrix<T>> {
  static constexpr kernel_parameter value{parameter_form::matrix, std::is_const_v<T>,
                                          element_name<std::remove_cv_t<T>>()};
};

template <class K>
struct parameters_of {
  static_assert(sizeof(K) == 0, "a kernel's first parameter is a fusewire::channel_view, and it returns nothing");
};
template <class... P>
struct parameters_of<void (*)(channel_view, P...)> {
  static constexpr kernel_parameter values[] = {parameter_of<P>::value..., {parameter_form::end, true, ""}};
};

}  // namespace detail

/// The parameters of a kernel after its first, which is a channel_view; the form of the last is `end`. K: the type of
/// &KERNEL. A kernel takes numbers, pointers and matrix<T>; with any other parameter this does not compile.
template <class K>
constexpr kernel_parameter const* kernel_parameters = detail::parameters_of<K>::values;

}  // namespace fusewire
