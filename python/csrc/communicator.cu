// The communicator, and all host functions of fusewire.
#include "communicator.hpp"

#include <fusewire/fusewire.hpp>
#include <fusewire/host.ipp>
#include <atomic>
#include <map>
#include <tuple>
#include <vector>

#include "operators.hpp"
#include "own_kernel.hpp"
#include "row_cuts.hpp"

namespace fusewire::binding {
namespace {

/// Ranks that meet by functions of Python.
class python_bootstrap final : public bootstrap {
 public:
  explicit python_bootstrap(communicator_options const& o) : rank_(o.rank), size_(o.size), host_(o.host) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  using bootstrap::all_gather;
  std::vector<std::byte> all_gather(void const* mine, std::size_t bytes) override {
    if (!failure_.empty()) throw peer_failed(failure_);
    std::vector<std::byte> all(bytes * std::size_t(size_));
    char why[1024] = "";
    switch (host_.all_gather(mine, bytes, all.data(), why, sizeof why)) {
      case 0: return all;
      case 2: failure_ = why; throw rank_mismatch(failure_);
      default: failure_ = why; throw peer_failed(failure_);
    }
  }
  std::unique_ptr<bootstrap> split(int) override {
    throw bad_argument("split: expected a process group of torch for a part of the ranks");
  }
  void fail(std::string const& why) override {
    if (!failure_.empty()) return;
    failure_ = why;
    host_.fail(why.c_str());
  }
  void keep(std::shared_ptr<void> what) override { (void)new auto(std::move(what)); }  // as long as the process
  void abandon() override { fail(text("rank ", rank_, " has ended")); }

 private:
  int rank_, size_;
  host_functions host_;
  std::string failure_;
};

/// Calls f with a value of the type that operators are compiled for.
template <class F>
auto with_type(element type, F const& f) {
  if (type == element::bf16) return f(bf16());
#ifndef FUSEWIRE_WITHOUT_F16
  if (type == element::f16) return f(f16());
#endif
  refuse("this fusewire was built for bfloat16 alone; expected bfloat16, or FUSEWIRE_TYPES=bf16,f16 when it is built");
}
product_maker maker_of(product_kind kind, element type) {
  return with_type(type, [&]<class T>(T) {
    return std::array{maker_of_ag_gemm<T>(), maker_of_gemm_rs<T>(), maker_of_gemm_ar<T>(),
                      maker_of_gemm_all_scatter<T>()}[std::size_t(kind)];
  });
}
decode_maker maker_of(decode_shape const& s) {
  return with_type(element(s.type), []<class T>(T) { return maker_of_flash_decode<T>(); });
}

expert_maker maker_of_experts(element type) {
  return with_type(type, []<class T>(T) { return binding::maker_of_experts<T>(); });
}

/// What sums are made of.
constexpr element sum_types[] = {element::bf16,
#ifndef FUSEWIRE_WITHOUT_F16
                                 element::f16,
#endif
                                 element::f32};
collective_maker maker_of(collective_kind kind, element type) {
  if (kind == collective_kind::all_gather || kind == collective_kind::all_to_all) return maker_of_copy(kind);
  if (type == element::f32) return maker_of_sum<float>(kind);
  return with_type(type, [&]<class T>(T) { return maker_of_sum<T>(kind); });
}
/// Calls visit(kind, type) for the collectives that there is room for.
template <class Visit>
void for_collectives(communicator_options const& o, Visit const& visit) {
  for (auto const type : sum_types) {
    if (o.max_bytes > 0) visit(collective_kind::reduce_scatter, type);
    if (o.reduce_rows > 0) visit(collective_kind::all_reduce, type);
  }
  if (o.max_bytes > 0)
    for (auto const kind : {collective_kind::all_gather, collective_kind::all_to_all}) visit(kind, element::bf16);
}

/// Of the heap and of the channel that all operators share. Both types are of one size.
requirements room_of(communicator_options const& o) {
  requirements r = channel::requirements(o.size, {.max_bytes = 1, .flags_per_source = 1});
  for (auto const kind :
       {product_kind::ag_gemm, product_kind::gemm_rs, product_kind::gemm_ar, product_kind::gemm_all_scatter}) {
    bool const gathers = kind == product_kind::ag_gemm;
    if ((gathers ? o.max_k : o.max_n) > 0)
      r += maker_of(kind, element::bf16).room(o.size, o, gathers ? o.max_k : 8);  // of the others' k it is independent
  }
  for (int i = 0; i < o.decodes; ++i) r += maker_of(o.decode[i]).room(o.size, o.decode[i]);
  for_collectives(o, [&](collective_kind kind, element type) { r += maker_of(kind, type).room(o.size, o); });
  if (o.max_bytes > 0) r += maker_of_rows().room(o.size, o);
  if (o.experts.max_tokens > 0) r += maker_of_experts(element::bf16).room(o.size, o);
  if (o.spare_bytes > 0) r += requirements::of<std::byte>(std::size_t(o.spare_bytes));
  return r;
}
heap_options heap_options_of(communicator_options const& o, requirements const& room) {
  heap_options h = heap_options::of(room);
  h.wait_limit = std::chrono::nanoseconds(std::int64_t(o.wait_seconds * 1e9));
  for (int r = 0; o.data_at && r < o.size; ++r) h.bulk_at.of[r] = static_cast<std::byte*>(o.data_at[r]);
  return h;
}
std::atomic<int> kernels_made = 0;  // by all communicators

auto key_of(decode_shape const& s) {
  return std::tuple(s.type, s.q_heads, s.kv_heads, s.head_dim, s.page_size, s.max_pages, s.scale, s.by_heads, s.masked,
                    s.batch_invariant);
}
std::string in_words(decode_shape const& s) {
  return text(s.type == int(element::bf16) ? "bfloat16" : "float16", ", q_heads = ", s.q_heads,
              ", kv_heads = ", s.kv_heads, ", head_dim = ", s.head_dim, ", page_size = ", s.page_size,
              ", max_pages = ", s.max_pages, ", scale = ", s.scale, s.by_heads ? ", by heads" : "",
              s.masked ? ", masked" : "", s.batch_invariant ? ", batch_invariant" : "");
}

}  // namespace

struct communicator::state {
  explicit state(communicator_options const& all)
      : o(all), ranks(make_world(std::make_unique<python_bootstrap>(o), o.device)), room(room_of(o)),
        memory(std::in_place, ranks, heap_options_of(o, room)), ch(std::in_place, *memory, room) {}

  communicator_options o;
  world ranks;
  requirements room;
  std::optional<heap> memory;
  std::optional<channel> ch;
  std::map<std::tuple<product_kind, element, int>, std::unique_ptr<product_operator>> products;
  std::vector<std::pair<decode_shape, std::unique_ptr<decode_operator>>> decodes;
  std::map<std::pair<collective_kind, element>, std::unique_ptr<collective_operator>> collectives;
  std::unique_ptr<rows_operator> rows;
  std::map<element, std::unique_ptr<expert_layer>> experts;
  std::map<int, own_kernel> kernels;  // by number

  /// A copy has no type.
  collective_operator& collective_for(collective_kind kind, element type) {
    bool const adds = kind == collective_kind::reduce_scatter || kind == collective_kind::all_reduce;
    auto const op = collectives.find({kind, adds ? type : element::bf16});
    if (op != collectives.end()) return *op->second;
    if (kind == collective_kind::all_reduce ? o.reduce_rows > 0 : o.max_bytes > 0)
      refuse("this fusewire was built for bfloat16 alone, and float32 of sums");
    refuse(kind == collective_kind::all_reduce ? "all_reduce: no room for it; expected init() with all_reduce"
                                               : "a collective: no room for it; expected init() with max_bytes");
  }

  expert_layer& experts_of(element type) {
    if (auto const layer = experts.find(type); layer != experts.end()) return *layer->second;
    if (o.experts.max_tokens > 0) refuse("this fusewire was built for bfloat16 alone");
    refuse("experts: no room for them; expected init() with experts");
  }

  product_operator& operator_for(product_kind kind, element type, std::int64_t k) {
    auto& op = products[{kind, type, extent(k)}];
    if (!op) op = maker_of(kind, type).make(*ch, o, extent(k));
    return *op;
  }
};

static find_kernel_function find_kernel_now = nullptr;
void set_find_kernel(find_kernel_function f) { find_kernel_now = f; }
void const* find_kernel(int number, element type, std::string const& kernel, std::string const& mainloop) {
  if (!find_kernel_now) refuse("custom epilogues: nothing compiles them; expected set_find_kernel() before");
  char why[4096] = "no reason was given";
  void const* const found = find_kernel_now(number, type, kernel.c_str(), mainloop.c_str(), why, sizeof why);
  if (!found) refuse(why);
  return found;
}

communicator::communicator(communicator_options const& o) {
  require(o.max_m >= 1 || (o.max_k == 0 && o.max_n == 0), std::source_location::current(), "init: max_m = ", o.max_m,
          "; expected at least 1 with max_k or max_n");
  state_ = std::make_unique<state>(o);
  state& s = *state_;
  try {
    std::uint64_t const seconds = std::uint64_t(o.wait_seconds * 1000);
    using named = heap::named;
    s.memory->require_equal_on_ranks(
        "init",
        std::array{named{"max_m", std::uint64_t(o.max_m)}, named{"max_k", std::uint64_t(o.max_k)},
                   named{"max_n", std::uint64_t(o.max_n)}, named{"max_bytes", std::uint64_t(o.max_bytes)},
                   named{"rows of all_reduce", std::uint64_t(o.reduce_rows)},
                   named{"columns of all_reduce", std::uint64_t(o.reduce_cols)},
                   named{"decode shapes", std::uint64_t(o.decodes)},
                   named{"tokens of experts", std::uint64_t(o.experts.max_tokens)},
                   named{"batch_invariant", std::uint64_t(o.batch_invariant)},
                   named{"spare bytes", std::uint64_t(o.spare_bytes)}, named{"milliseconds of wait_seconds", seconds}},
        std::source_location::current());
    for (int i = 0; i < o.decodes; ++i)
      s.decodes.emplace_back(o.decode[i], maker_of(o.decode[i]).make(*s.ch, o.decode[i]));
    s.o.decode = nullptr, s.o.data_at = nullptr;  // the caller's
    for_collectives(o, [&](collective_kind kind, element type) {
      s.collectives[{kind, type}] = maker_of(kind, type).make(*s.ch, o);
    });
    if (o.max_bytes > 0) s.rows = maker_of_rows().make(*s.ch, o);
    if (o.experts.max_tokens > 0)
      for (auto const type : sum_types)
        if (type != element::f32) s.experts[type] = maker_of_experts(type).make(*s.ch, o);
  } catch (std::exception const& e) {
    s.ranks.fail(e.what());
    throw;
  }
}
communicator::~communicator() = default;
std::size_t communicator::bytes_of_data(communicator_options const& o) { return heap_options_of(o, room_of(o)).bulk; }

int communicator::size() const { return state_->ranks.size(); }

void communicator::product(product_kind kind, product_call const& c) {
  product_operator& op = state_->operator_for(kind, c.type, c.x.cols);
  row_cuts const cuts(kind, c, size(), state_->o.max_m);
  require(c.custom.number == 0 || !cuts.are_several(), std::source_location::current(),
          "an epilogue sees the rows of one launch; expected a call of up to max_m = ", state_->o.max_m, " rows");
  cuts.run([&](product_call const& launch) { op.call(launch); });
}
std::size_t communicator::scratch_bytes(product_kind kind, product_call const& c) {
  return row_cuts(kind, c, size(), state_->o.max_m).scratch_bytes();
}
void communicator::prepare(product_kind kind, element type, int k) { (void)state_->operator_for(kind, type, k); }
std::string communicator::describe(product_kind kind, product_call const& c) {
  row_cuts const cuts(kind, c, size(), state_->o.max_m);
  std::string const first = state_->operator_for(kind, c.type, c.x.cols).describe(cuts.first());
  return cuts.are_several() ? cuts.count() + first : first;
}
void communicator::decode(decode_shape const& s, decode_call const& c) {
  for (auto const& [shape, op] : state_->decodes)
    if (key_of(shape) == key_of(s)) return op->call(c);
  std::string made;
  for (auto const& [shape, op] : state_->decodes) made += "\n  " + in_words(shape);
  refuse(text("flash_decode: no operator for ", in_words(s),
              "; expected one of those that init() was given:", made.empty() ? " none" : made));
}

int communicator::own_heads(int heads) const {
  return heads / size() + (state_->ranks.rank() < heads % size());  // flash_decode::heads_of()
}
void communicator::collective(collective_kind kind, collective_call const& c) {
  state_->collective_for(kind, c.type).call(c);
}
void communicator::exchange_rows(rows_call const& c) {
  if (!state_->rows) refuse("all_to_all_v: no room for it; expected init() with max_bytes");
  state_->rows->call(c);
}
void communicator::norm(norm_call const& c) { state_->collective_for(collective_kind::all_reduce, c.type).norm(c); }

void communicator::dispatch(dispatch_call const& c) { state_->experts_of(c.type).dispatch(c); }
void communicator::combine(combine_call const& c) { state_->experts_of(c.type).combine(c); }
void communicator::multiply_groups(grouped_call const& c) { state_->experts_of(c.type).multiply(c); }
routing_layout communicator::layout_of_routing() const {
  (void)state_->experts_of(element::bf16);
  return maker_of_experts(element::bf16).routing(size(), state_->o);
}

int communicator::make_kernel(kernel_options const& o) {
  state& s = *state_;
  auto const where = std::source_location::current();
  using named = heap::named;
  s.memory->require_equal_on_ranks(
      "kernel",
      std::array{named{"whether they have compiled it", o.kernel != nullptr}, named{"a hash of its source", o.source},
                 named{"max_bytes", std::uint64_t(o.max_bytes)},
                 named{"flags_per_source", std::uint64_t(o.flags_per_source)},
                 named{"programmatic", std::uint64_t(o.programmatic)}},
      where, s.memory->state()->alarmed());
  require(o.kernel != nullptr, where, "kernel: no kernel; expected the address of one");
  require(o.max_bytes >= 1 && o.flags_per_source >= 1, where, "kernel: max_bytes = ", o.max_bytes,
          ", flags_per_source = ", o.flags_per_source, "; expected at least 1 of each");
  try {
    int const number = ++kernels_made;
    s.kernels.try_emplace(number, s.ranks, o, std::chrono::nanoseconds(std::int64_t(s.o.wait_seconds * 1e9)));
    return number;
  } catch (std::exception const& e) {
    s.ranks.fail(e.what());
    throw;
  }
}
void communicator::launch_kernel(kernel_call const& c) {
  auto const k = state_->kernels.find(c.number);
  if (k == state_->kernels.end())
    refuse("a kernel that was destroyed, or is of another group; expected fusewire.kernel() before");
  k->second.call(c);
}
void communicator::end_kernel(int number) {
  if (state_->kernels.erase(number)) state_->ranks.collect();
}
void* communicator::allocate(std::size_t bytes) {
  heap& h = *state_->memory;
  return h.here(h.allocate<std::byte>(bytes));
}
void communicator::free(void* data) {
  heap& h = *state_->memory;
  h.free(sym<std::byte>{h.offset_of(data, 1, "free: data", std::source_location::current()), 1});
}

void communicator::check(void* stream) { state_->ranks.check(static_cast<hipStream_t>(stream)); }
void communicator::poll_errors() { state_->ranks.poll_errors(); }
void communicator::reset() {
  state_->ch->reset();
  for (auto& [number, k] : state_->kernels) k.reset();
}
void communicator::end() {
  state& s = *state_;
  s.ranks.exchange().barrier();  // all launches of all ranks are made
  s.decodes.clear();
  s.products.clear();
  s.collectives.clear();
  s.rows.reset();
  s.experts.clear();
  s.kernels.clear();
  s.ch.reset();
  s.memory.reset();
  s.ranks.collect();
  s.ranks.exchange().barrier();
}
void communicator::abandon() {
  state_->ranks.abandon();
  (void)state_.release();
}

char const* kind_of(std::exception const& e) {
  auto const is = [&]<class E>(E const*) { return dynamic_cast<E const*>(&e) != nullptr; };
  return is(static_cast<launch_abandoned const*>(nullptr))    ? "launch_abandoned"
         : is(static_cast<wait_timeout const*>(nullptr))      ? "wait_timeout"
         : is(static_cast<launch_unfinished const*>(nullptr)) ? "launch_unfinished"
         : is(static_cast<peer_failed const*>(nullptr))       ? "peer_failed"
         : is(static_cast<rank_mismatch const*>(nullptr))     ? "rank_mismatch"
         : is(static_cast<bad_argument const*>(nullptr))      ? "bad_argument"
         : is(static_cast<out_of_space const*>(nullptr))      ? "out_of_space"
         : is(static_cast<bootstrap_failed const*>(nullptr))  ? "bootstrap_failed"
         : is(static_cast<runtime_failure const*>(nullptr))   ? "runtime_failure"
                                                              : "error";
}
void refuse(std::string const& why) { throw bad_argument(why); }
int version() { return FUSEWIRE_VERSION; }

}  // namespace fusewire::binding
