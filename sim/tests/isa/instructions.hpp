// Runs single instructions: all texts of a test are assembled at once, each then executes on a wave that the test
// fills.
#pragma once
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../../isa/numeric.hpp"
#include "../../isa/program.hpp"
#include "flat_machine.hpp"

namespace fusewire::sim::test {

/// Assembled instruction sequences, each ended by s_endpgm.
class code {
 public:
  explicit code(std::vector<std::string> const& texts);
  /// Executes sequence i; returns the fault's text, empty if it ended.
  std::string run(std::size_t i, wave& w) const;

 private:
  std::vector<u8> image_;
  loaded_module loaded_;
  std::vector<u32> entries_;
};

/// A wave with random registers, 64 KiB of LDS and 256 bytes of scratch per lane.
class test_wave {
 public:
  explicit test_wave(u32 seed);
  wave& operator*() { return *wave_; }
  wave* operator->() { return wave_.get(); }
  u64 v64(int reg, int lane) const { return wave_->v[reg][lane] | u64(wave_->v[reg + 1][lane]) << 32; }
  u64 s64(int reg) const { return wave_->s[reg] | u64(wave_->s[reg + 1]) << 32; }
  void set_s64(int reg, u64 value) { wave_->s[reg] = u32(value), wave_->s[reg + 1] = u32(value >> 32); }
  void set_exec(u64 mask) { set_s64(126, mask); }
  std::vector<u8>& lds() { return group_.lds; }
  std::vector<u8>& scratch() { return scratch_; }
  flat_memory& memory() { return memory_; }

 private:
  std::unique_ptr<wave> wave_;
  workgroup group_;
  std::vector<u8> scratch_;
  flat_memory memory_;
  std::string fault_;
};

/// A number of `bits` (16, 32, 64) bits; often one that is an edge case as a float or as an integer.
u64 edge_value(std::mt19937& random, int bits, bool floating);

enum class match { exact, close };  // close: within 2 units of the last place

struct lane_options {
  match how = match::exact;
  bool keeps_high = false;    // a 16-bit result leaves the upper half
  bool accumulates = false;   // the last parameter is the destination
  bool modifiers = true;      // floats: also try -source0 and |source1|
  bool scalar_source = true;  // also try an SGPR as source 0
};

/// Vector instructions against a function of one lane's sources.
class lane_suite {
 public:
  template <class F>
  void add(std::string mnemonic, F reference, lane_options options = {}) {
    add_typed(std::move(mnemonic), std::function(reference), options);
  }
  /// Assembles and checks them all.
  void run();

 private:
  struct operand_type {
    int bits;
    bool floating;
  };
  struct entry {
    std::string mnemonic;
    operand_type result;
    std::vector<operand_type> sources;
    std::function<u64(std::vector<u64> const&)> reference;
    lane_options options;
  };
  enum class form { plain, scalar, modified };
  struct variant {
    entry const* what;
    form how;
    std::string text;
  };

  template <class T>
  static constexpr operand_type type_of() {
    return {int(8 * sizeof(T)), std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, f16>};
  }
  template <class T>
  static T from_bits(u64 x) {
    if constexpr (sizeof(T) == 8) return as<T>(x);
    if constexpr (sizeof(T) == 4) return as<T>(u32(x));
    if constexpr (sizeof(T) == 2) return as<T>(u16(x));
  }
  template <class T>
  static u64 to_bits(T x) {
    if constexpr (sizeof(T) == 8) return as<u64>(x);
    if constexpr (sizeof(T) == 4) return as<u32>(x);
    if constexpr (sizeof(T) == 2) return as<u16>(x);
  }
  template <class R, class... A>
  void add_typed(std::string mnemonic, std::function<R(A...)> f, lane_options options) {
    auto call = [f]<std::size_t... I>(std::vector<u64> const& v, std::index_sequence<I...>) {
      return to_bits<R>(f(from_bits<A>(v[I])...));
    };
    entries_.push_back({std::move(mnemonic),
                        type_of<R>(),
                        {type_of<A>()...},
                        [call](std::vector<u64> const& v) { return call(v, std::index_sequence_for<A...>{}); },
                        options});
  }
  static std::string text(entry const&, form);
  static void check(variant const&, code const&, std::size_t index);

  std::vector<entry> entries_;
};

}  // namespace fusewire::sim::test
