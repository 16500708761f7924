// A kernel of the caller's: its address, what it takes, and its channel.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/kernel_parameters.hpp>

#include "communicator.hpp"

namespace fusewire::binding {

/// Calls follow each other; the channel is for this kernel alone.
class own_kernel {
 public:
  /// Collective. Loads the kernel's code. Fails: bad_argument; as heap and channel do.
  own_kernel(world& w, kernel_options const& o, std::chrono::nanoseconds wait_limit)
      : name_(o.name), source_(o.source), kernel_(o.kernel), programmatic_(o.programmatic), channel_(w, o, wait_limit) {
    for (auto const* p = o.parameters; p->form != parameter_form::end; ++p) parameters_.push_back(*p);
    letters_ = name_.substr(0, 8);
    channel_.ch.heap().names().add_launch(letters_.c_str(), [name = name_](auto const& what) {
      return text("the kernel ", name, " (extents ", what[2], ", ", what[3], ", ", what[4], ", ", what[5], ")");
    });
    (void)load_kernel(w, kernel_, 1);
  }

  /// Launches it once.
  void call(kernel_call const& c) {
    std::vector<argument> values(parameters_.size());
    std::vector<void*> at;
    int reads = 0, writes = 0, integers = 0, floats = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      kernel_parameter const& p = parameters_[i];
      if (p.form != parameter_form::number) {
        int const t = p.is_const ? reads++ : writes++;
        if (t < (p.is_const ? c.read_count : c.write_count)) values[i].put(p, (p.is_const ? c.reads : c.writes)[t]);
      } else if (std::string_view(p.element).starts_with("float")) {
        if (int const f = floats++; f < c.float_count) values[i].put(p, c.floats[f]);
      } else if (int const n = integers++; n < c.integer_count && !values[i].put(p, c.integers[n])) {
        refuse(
            text(name_, ": ", c.integers[n], " for parameter ", i + 1, "; expected a number that ", p.element, " has"));
      }
      at.push_back(values[i].bytes);
    }
    if (std::array{reads, writes, integers, floats} !=
        std::array{c.read_count, c.write_count, c.integer_count, c.float_count})
      refuse(text(name_, ": expected ", reads, " tensors that it reads, ", writes, " that it writes, ", integers,
                  " integers and ", floats, " other numbers"));
    auto const& e = c.extents;
    channel const& ch = channel_.ch;
    launch(ch.world(), static_cast<hipStream_t>(c.stream),
           {.blocks = c.blocks, .threads = c.threads, .shared_bytes = c.shared_bytes, .programmatic = programmatic_},
           kernel_, ch.view(make_header(letters_.c_str(), source_, e[0], e[1], e[2], e[3])), at);
  }

  /// Collective; waits for the device. After a launch was abandoned.
  void reset() { channel_.ch.reset(); }

 private:
  /// What is passed for one parameter.
  struct argument {
    alignas(8) std::byte bytes[sizeof(matrix<float>)];

    template <class X>
    void put(X const& x) {
      static_assert(sizeof x <= sizeof bytes);
      std::memcpy(bytes, &x, sizeof x);
    }
    void put(kernel_parameter const& p, matrix_of_torch const& m) {
      p.form == parameter_form::matrix ? put(view<std::byte>(m)) : put(m.data);
    }
    void put(kernel_parameter const& p, double x) { std::string_view(p.element) == "float64" ? put(x) : put(float(x)); }
    /// False: the type does not have the number.
    bool put(kernel_parameter const& p, std::int64_t x) {
      put(x);  // the lowest bytes come first
      std::string_view const type = p.element;
      bool const is_signed = type.starts_with("int");
      int const bits = type == "bool"         ? 1
                       : type.ends_with("64") ? 64
                       : type.ends_with("32") ? 32
                       : type.ends_with("16") ? 16
                                              : 8;
      if (bits == 64) return is_signed || x >= 0;
      std::int64_t const end = std::int64_t(1) << (bits - is_signed);
      return x < end && x >= (is_signed ? -end : 0);
    }
  };
  /// The heap ends with its channel.
  struct own_channel {
    own_channel(world& w, kernel_options const& o, std::chrono::nanoseconds wait_limit)
        : needs(channel::requirements(w.size(),
                                      {.max_bytes = std::size_t(o.max_bytes), .flags_per_source = o.flags_per_source})),
          memory(w, heap_of(needs, wait_limit)), ch(memory, needs) {}
    static heap_options heap_of(requirements const& needs, std::chrono::nanoseconds wait_limit) {
      heap_options h = heap_options::of(needs);
      h.wait_limit = wait_limit;
      return h;
    }
    requirements needs;
    heap memory;
    channel ch;
  };

  std::string name_, letters_;
  std::uint64_t source_;
  void const* kernel_;
  bool programmatic_;
  std::vector<kernel_parameter> parameters_;
  own_channel channel_;
};

}  // namespace fusewire::binding
