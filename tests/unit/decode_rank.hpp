// What tests of Flash Decode call it with, and compare its results with.
#pragma once
#include <fusewire/ops/flash_decode.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "faults.hpp"
#include "reference/attention.hpp"

namespace support {

using problem = decode_problem;

struct heads_of {
  int q, kv, d;
};

template <class T>
inline constexpr float half_ulp = std::is_same_v<T, bf16> ? 1.0f / 512 : 1.0f / 2048;  // relative

/// One rank's memory, and calls on it. Rank: rank_of_test, or what has its calls.
template <class T, class Rank = rank_of_test>
struct decode_rank {
  Rank& r;
  heads_of h;
  int max_batch, page_size, max_pages, pages;
  float scale;
  fusewire::reduce_algorithm shots;
  fusewire::output output = fusewire::output::replicated;
  fusewire::lse_base lse_base = fusewire::lse_base::e;
  bool windowed = false;
  float soft_cap = 0;
  sym<T> q, k, v, out;
  sym<std::int32_t> table, lengths, window;
  sym<float> lse;

  decode_rank(Rank& rank, heads_of heads, int batch, int page, int pages_per_sequence, float score_scale = 0,
              fusewire::reduce_algorithm how = reduce_algorithm::automatic)
      : r(rank), h(heads), max_batch(batch), page_size(page), max_pages(pages_per_sequence),
        pages(batch * pages_per_sequence + 3), scale(score_scale), shots(how),
        q(r.heap.template allocate<T>(std::size_t(batch * h.q * h.d))),
        k(r.heap.template allocate<T>(std::size_t(pages * page * h.kv * h.d))), v(r.heap.template allocate<T>(k.count)),
        out(r.heap.template allocate<T>(q.count)),
        table(r.heap.template allocate<std::int32_t>(std::size_t(batch * max_pages))),
        lengths(r.heap.template allocate<std::int32_t>(std::size_t(batch))),
        window(r.heap.template allocate<std::int32_t>(std::size_t(batch))),
        lse(r.heap.template allocate<float>(std::size_t(batch * h.q))) {}

  flash_decode_options options() const {
    return {.max_batch = max_batch,
            .q_heads = h.q,
            .kv_heads = h.kv,
            .head_dim = h.d,
            .page_size = page_size,
            .max_pages = max_pages,
            .scale = scale,
            .shots = shots,
            .output = output,
            .lse_base = lse_base};
  }
  flash_decode_call<T> call(int batch) const {
    return {.q = r.here(q),
            .k_cache = r.here(k),
            .v_cache = r.here(v),
            .block_table = r.here(table),
            .lengths = r.here(lengths),
            .out = r.here(out),
            .lse = r.here(lse),
            .batch = batch,
            .window_begins = windowed ? r.here(window) : nullptr,
            .soft_cap = soft_cap};
  }

  /// Pages in a shuffled order. Whatever is not a token is NaN, and table entries past the last page are no pages.
  void fill(problem const& p) {
    std::vector<T> qs(q.count), ks(k.count), vs(k.count);
    for (auto* x : {&qs, &ks, &vs})
      for (T& e : *x) e.bits = 0xffff;
    std::vector<std::int32_t> tables(table.count, 0x7ffffff0), ns(lengths.count, -1), begins(window.count, 0x7ffffff0),
        order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    lcg random{p.seed + unsigned(r.rank())};
    for (int i = pages - 1; i > 0; --i) std::swap(order[std::size_t(i)], order[std::size_t(random.below(i + 1))]);
    for (int s = 0, next = 0; s < p.batch; ++s) {
      int const n = ns[std::size_t(s)] = p.length(r.rank(), s), first = p.first(r.rank(), s);
      begins[std::size_t(s)] = p.window_begin ? p.window_begin(r.rank(), s) : 0;
      for (int head = 0; head < h.q; ++head)
        for (int j = 0; j < h.d; ++j) qs[std::size_t((s * h.q + head) * h.d + j)] = T(p.q(s, head, j));
      for (int t = 0; t < n; ++t) {
        auto& page = tables[std::size_t(s * max_pages + t / page_size)];
        if (t % page_size == 0) page = order[std::size_t(next++)];
        if (t < first) {
          if (t / page_size < first / page_size) page = 0x7ffffff0;
          continue;
        }
        for (int head = 0; head < h.kv; ++head)
          for (int j = 0; j < h.d; ++j) {
            auto const at = (std::size_t(page * page_size + t % page_size) * std::size_t(h.kv) + std::size_t(head)) *
                                std::size_t(h.d) +
                            std::size_t(j);
            ks[at] = T(p.k(r.rank(), s, t, head, j));
            vs[at] = T(p.v(r.rank(), s, t, head, j));
          }
      }
    }
    r.upload(qs, q);
    r.upload(ks, k);
    r.upload(vs, v);
    r.upload(tables, table);
    r.upload(ns, lengths);
    r.upload(begins, window);
    poison();
  }
  void poison() {
    r.fill(out, 0xff);
    r.fill(lse, 0xff);
  }

  /// Each output is within what the arithmetic allows: the rounding of the output and of the weights to T (half an ulp
  /// each, the latter of values up to vmax), subnormal f16 weights, and the rounding of a score's product with the
  /// scale.
  void compare(problem const& p) {
    auto const found = r.download(out);
    auto const found_lse = r.download(lse);
    double const c = scale != 0 ? scale : 1 / std::sqrt(double(h.d));
    int const group = h.q / h.kv;
    index_range const own = output == fusewire::output::heads ? flash_decode<T>::heads_of(r.rank(), r.size(), options())
                                                              : index_range{0, h.q};
    double const lse_unit = lse_base == fusewire::lse_base::two ? std::log(2.0) : 1;
    for (int s = 0; s < p.batch; ++s)
      for (int head = own.begin; head < own.end; ++head) {
        int const row = s * own.size() + head - own.begin;
        auto const [m, l, most, vmax, tokens, o] = attend(p, r.size(), s, head, group, h.d, c, soft_cap);
        bool const exact = p.exact();
        double const fp32 = most * 0x1p-21 + 1e-6;
        for (int j = 0; j < h.d; ++j) {
          double const wanted = l > 0 ? o[std::size_t(j)] / l : 0, f = float(found[std::size_t(row * h.d + j)]);
          double const allowed = half_ulp<T> * (std::abs(wanted) + vmax) * 1.01 + tokens * 0x1p-25 * vmax + fp32 * vmax;
          bool const good = exact ? f == float(T(float(o[std::size_t(j)]) / float(std::max(l, 1.0))))
                                  : std::abs(f - wanted) <= allowed;
          if (!r.found.expect(good, "sequence ", s, " head ", head, " d ", j, ": ", f, ", wanted ", wanted, " +- ",
                              exact ? 0 : allowed))
            return;
        }
        double const wanted = l > 0 ? (m + std::log(l)) / lse_unit : -INFINITY, f = found_lse[std::size_t(row)];
        if (!r.found.expect(f == wanted || std::abs(f - wanted) <= fp32 / lse_unit + std::abs(wanted) * 0x1p-22,
                            "sequence ", s, " head ", head, ": lse ", f, ", wanted ", wanted))
          return;
      }
    for (std::size_t i = std::size_t(p.batch * own.size() * h.d); i < out.count; ++i)
      if (!r.found.expect(found[i].bits == 0xffff, "element ", i, " of out, beyond the batch, was written")) return;
    for (std::size_t i = std::size_t(p.batch * own.size()); i < lse.count; ++i)
      if (!r.found.expect(std::isnan(found_lse[i]), "element ", i, " of lse, beyond the batch, was written")) return;
  }
  template <class Operator>
  void run(Operator& op, problem const& p) {
    fill(p);
    op(r.stream, call(p.batch));
    r.world.check(r.stream);
    compare(p);
  }
};

}  // namespace support
