// Reduction of partials (o, m, l) of softmax (softmax.hpp) that arrive as LL words: those of a head item's splits, or
// of ranks. A wave has several readers for each vec4, which is four neighbouring elements of o:
//
//   read     reader 0: vec4s 0, 1, ... | reader 1: vec4s 0, 1, ... | ...   neighbouring lanes, neighbouring words
//   reduce   vec4 0: readers 0, 1, ... | vec4 1: readers 0, 1, ... | ...   after a shuffle; over neighbouring lanes
//
// Each reader has a contiguous range of the partials. Nothing goes through LDS, and no wave waits for another. The
// order of a reduction depends on the numbers of partials and readers alone.
#pragma once
#include <bit>

#include <fusewire/device/ll.hpp>
#include <fusewire/attention/decode_policy.hpp>
#include <fusewire/attention/softmax.hpp>

namespace fusewire {

/// The words of a vec4 of one partial.
struct vec4_words {
  static constexpr int count = 6;  // words of a vec4
  std::uint64_t word[count];       // o, then (m, l)

  /// Loads word j by load(j).
  template <class Load>
  __device__ static vec4_words loaded(Load const& load) {
    vec4_words x;
#pragma unroll
    for (int j = 0; j < count; ++j) x.word[j] = load(j);
    return x;
  }
  /// Has `read` check all of them.
  __device__ void check(ll_reader& read) const {
#pragma unroll
    for (std::uint64_t w : word) read.check(w);
  }
  /// What they hold. Requires: read.again() has returned false after check(read).
  __device__ vec4 o() const { return {{value(0), value(1), value(2), value(3)}}; }
  /// See o().
  __device__ softmax_scale scale() const { return {value(4), value(5)}; }

 private:
  __device__ float value(int j) const { return ll_value<float>(word[j]); }
};

namespace detail {

inline constexpr int log_lanes = std::countr_zero(unsigned(wave::width));  // of a wave

/// Combines a reader's partials [first, last), of which `Flight` are in flight together. None if first >= last: then
/// partial last - 1 is read and left out. l is NaN if the wait timed out.
template <int Flight, class Load, class Name>
__device__ softmax_partial partial_of_reader(ll_reader read, int first, int last, Load const& load, Name const& name) {
  int const count = last - first;
  vec4_words words[Flight];
  softmax_partial sum = combine_partials<Flight>(
      count < 1 ? 1 : count, [&](int, int k) { return words[k].scale(); }, [&](int, int k) { return words[k].o(); },
      [&](int n) {
        do {
#pragma unroll
          for (int k = 0; k < Flight; ++k) words[k] = load(first + n + k < last ? first + n + k : last - 1);
          platform::sched_barrier();
#pragma unroll
          for (vec4_words const& x : words) x.check(read);
        } while (read.again([&] { return name(read); }));
      });
  if (count < 1) sum = {};
  if (read.gave_up()) sum.s.l = __builtin_nanf("");
  return sum;
}

/// Combines the partials of 2^log neighbouring lanes, up to 8, in all of them: the same bits, because products are
/// rounded before lanes add each other's. Called by: every lane.
__device__ inline softmax_partial combine_lanes(softmax_partial x, int log) {
  auto const steps = [log](auto const& step) {
    if (log > 0) step(std::integral_constant<int, 0>{});
    if (log > 1) step(std::integral_constant<int, 1>{});
    if (log > 2) step(std::integral_constant<int, 2>{});
  };
  float m = x.s.m;
  steps([&](auto s) { m = fmaxf(m, platform::of_other_half<s.value>(m)); });
  float const weight = softmax_weight(x.s.m, m);
  float sums[] = {platform::rounded_product(x.o.x[0], weight), platform::rounded_product(x.o.x[1], weight),
                  platform::rounded_product(x.o.x[2], weight), platform::rounded_product(x.o.x[3], weight),
                  platform::rounded_product(x.s.l, weight)};
  steps([&](auto s) {
#pragma unroll
    for (float& y : sums) y += platform::of_other_half<s.value>(y);
  });
  return {{{sums[0], sums[1], sums[2], sums[3]}}, {m, sums[4]}};
}

}  // namespace detail

/// Waits for the partials of the vec4s [begin, end) and reduces them. 2^log_readers lanes, up to 8, read those of a
/// vec4. Of each vec4 i they all call consume(i, result, n, readers), n = 0 to readers - 1. load(partial, i) loads the
/// words of vec4 i. l is NaN if the wait timed out; name(read, first, last, i) says what the report then names, of
/// the partials [first, last). Called by: every thread of a block of Policy.waves waves, with the same arguments.
template <decode_policy Policy, class Load, class Name, class Consume>
__device__ void reduce_partials(channel_epoch const& e, world_view const& w, int begin, int end, int partials,
                                int log_readers, Load const& load, Name const& name, Consume const& consume) {
  int const readers = 1 << log_readers, log_vec4s = detail::log_lanes - log_readers,
            of_reader = (partials + readers - 1) >> log_readers, lane = platform::no_hoist_lane(wave{}.rank()),
            first = (lane >> log_vec4s) * of_reader, last = first + of_reader < partials ? first + of_reader : partials,
            n = lane & (readers - 1);
#pragma unroll 1
  for (int at = begin + (platform::uniform(wave{}.index()) << log_vec4s); at < end; at += Policy.waves << log_vec4s) {
    int const i = at + (lane >> log_readers), read = at + (lane & ((1 << log_vec4s) - 1)),
              loaded = read < end ? read : end - 1;
    auto const load_vec4 = [&](int partial) { return load(partial, loaded); };
    auto const name_word = [&](ll_reader const& r) { return name(r, first < last ? first : last - 1, last, loaded); };
    ll_reader const reader(e, w);
    softmax_partial sum =
        of_reader > 1 ? detail::partial_of_reader<Policy.partials_in_flight>(reader, first, last, load_vec4, name_word)
                      : detail::partial_of_reader<1>(reader, first, last, load_vec4, name_word);
    if (log_readers > 0) {
      int const from = (n << log_vec4s) + (lane >> log_readers);
#pragma unroll
      for (float& x : sum.o.x) x = platform::shuffle(x, from);
      sum.s = {platform::shuffle(sum.s.m, from), platform::shuffle(sum.s.l, from)};
      sum = detail::combine_lanes(sum, log_readers);
    }
    if (i < end) consume(i, sum, n, readers);
  }
}

}  // namespace fusewire
