// Rows that travel in 8 bits, with a scale for each block of 64 elements: half of the bytes of flag_rows.
//
//   vector of 8 elements --pack()--> 8 bytes in units of its block's scale: largest |x| / the largest number of Q
//   inbox row   | 8 bytes of each vector | fp32 scale of each block |
//
// The 8 lanes that hold a block find its scale together. Of a block with NaN or an infinity no number is finite.
#pragma once
#include <fusewire/comm/row_exchange.hpp>
#include <fusewire/core/fp8.hpp>

namespace fusewire {

/// An 8-bit type in which partial sums can travel.
template <class Q>
concept is_quantised =
    std::is_same_v<Q, std::int8_t> || std::is_same_v<Q, fp8_e4m3fn> || std::is_same_v<Q, fp8_e4m3fnuz>;

/// Whether partial sums of T, 16-bit or float, can travel as Partial: as they are, or if they have 16 bits in 8.
template <class Partial, class T>
concept partial_of = (is_16_bit_float<T> || std::is_same_v<T, float>) &&
                     (std::is_same_v<Partial, T> || (is_quantised<Partial> && is_16_bit_float<T>));

namespace detail {

/// As flag_rows, but for what its members say. T: f16 or bf16.
template <class T, is_quantised Q>
  requires is_16_bit_float<T>
class quantised_rows : flag_rows<T> {
  using base = flag_rows<T>;
  static constexpr int lanes = 8;  // of a block, a vector each

 public:
  using vector = typename base::vector;
  /// A vector as it travels.
  struct packed {
    std::uint64_t values;  // eight Q
    float unit;            // of the block
  };
  using loaded = packed;
  /// Elements of a vector as they come out.
  struct unpacked {
    float element[8];  // in their order
  };
  static constexpr int in_flight = 4, blocks_per_cu = base::blocks_per_cu;
  static constexpr bool is_exact = false;  // what comes out is not what was put

  __device__ quantised_rows(channel_epoch const& e, world_view const& w, row_sections const& s)
      : base(e, w, s), w_(w), e_(e), s_(s) {}

  using base::refresh, base::sent, base::wait;

  /// Called by: every lane of a wave; those outside the row have zeros.
  static __device__ packed pack(vector const& x) {
    unsigned largest = 0;  // bits of |x|, whose order is that of numbers, with NaN above all
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = max(largest, __builtin_bit_cast(unsigned, fabsf(float(x.element[j]))));
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) largest = max(largest, platform::shuffle_xor(largest, step));
    packed p{0, __builtin_bit_cast(float, largest) / largest_number()};
    float const by = p.unit > 0 ? 1 / p.unit : 0;  // a block of zeros
#pragma unroll
    for (int j = 0; j < 8; ++j) p.values |= std::uint64_t(bits_of(float(x.element[j]) * by)) << 8 * j;
    return p;
  }
  /// What the other ranks get of it. Products are rounded before they are added, by every rank alike.
  static __device__ unpacked unpack(packed const& p) {
    unpacked x;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      x.element[j] = platform::rounded_product(number_of(std::uint8_t(p.values >> 8 * j)), p.unit);
    return x;
  }
  __device__ void put(int section, int ahead, int r, int v, packed const& x) const {
    std::byte* const row = at(w_.next(ahead), section, w_.size() - ahead, r);
    reinterpret_cast<std::uint64_t*>(row)[v] = x.values;
    if (v % lanes == 0) units_of(row)[v / lanes] = x.unit;
  }

  /// As that of flag_rows.
  class reader {
   public:
    __device__ reader(quantised_rows const& rows, int section) : rows_(rows), section_(section) {}
    __device__ loaded load(int source, int r, int v) const {
      int const ahead = source - rows_.w_.rank() + (source < rows_.w_.rank() ? rows_.w_.size() : 0);
      std::byte* const row = rows_.at(rows_.w_.rank(), section_, ahead, r);
      return {reinterpret_cast<std::uint64_t const*>(row)[v], rows_.units_of(row)[v / lanes]};
    }
    __device__ unpacked value(loaded const& x) { return unpack(x); }
    template <class First>
    __device__ bool again(First const&) {
      return false;
    }
    __device__ bool failed() const { return rows_.e_.control().should_fill_nan(); }

   private:
    quantised_rows const& rows_;
    int section_;
  };

 private:
  static __device__ constexpr float largest_number() {
    if constexpr (std::is_same_v<Q, std::int8_t>) return 127;
    else return Q::largest;
  }
  static __device__ std::uint8_t bits_of(float x) {
    float const most = largest_number(), in_range = fminf(fmaxf(x, -most), most);
    if constexpr (std::is_same_v<Q, std::int8_t>) return std::uint8_t(std::int8_t(rintf(in_range)));
    else return __builtin_bit_cast(std::uint8_t, Q(in_range));
  }
  static __device__ float number_of(std::uint8_t bits) { return float(__builtin_bit_cast(Q, bits)); }

  /// Bytes of a row: fewer than its elements take.
  __device__ std::int64_t pitch() const {
    return s_.vectors * std::int64_t(8) + (s_.vectors + 15) / 16 * std::int64_t(8);
  }
  __device__ float* units_of(std::byte* row) const {
    return reinterpret_cast<float*>(row + s_.vectors * std::int64_t(8));
  }
  /// Row r from the rank `ahead` places after the owner of the inbox.
  __device__ std::byte* at(int inbox, int section, int ahead, int r) const {
    return e_.template inbox<std::byte>(inbox) +
           (std::int64_t(section * (w_.size() - 1) + ahead - 1) * s_.rows + r) * pitch();
  }

  world_view const& w_;
  channel_epoch const& e_;
  row_sections const& s_;
};

/// quantised<Q>::rows<T> is an exchange, as flag_rows<T> is one.
template <class Q>
struct quantised {
  template <class T>
  using rows = quantised_rows<T, Q>;
};

}  // namespace detail

}  // namespace fusewire
