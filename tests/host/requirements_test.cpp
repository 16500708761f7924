// Requirements against the allocator: what they say suffices, in any order, and a unit less does not.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fusewire/memory/offset_allocator.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>
#include <fusewire/launch/ll_buffer.hpp>

#include <random>

using namespace fusewire;

namespace {

struct array {
  std::size_t bytes, alignment;
};

requirements of(array const& a) { return requirements::of<std::byte>(a.bytes, a.alignment); }

/// Whether a segment of so many bytes holds the arrays, allocated as a heap does.
bool suffices(std::size_t capacity, std::vector<array> const& arrays) {
  offset_allocator segment(0, capacity, detail::heap_unit);
  for (array const& a : arrays)
    if (!segment.allocate(a.bytes + detail::gap_behind(a.bytes), a.alignment)) return false;
  return true;
}

}  // namespace

TEST_CASE("requirements: arrays of any size and alignment fit, in any order") {
  std::mt19937 random(GENERATE(range(0u, 200u)));
  auto const below = [&](unsigned n) { return random() % n; };
  std::vector<array> arrays;
  requirements sum;
  bool large = false;  // an alignment of more than a unit, whose gap is counted in full
  for (unsigned n = 1 + below(12); n > 0; --n) {
    std::size_t const sizes[] = {1 + below(600), 256 * (1 + below(8)), 1 + below(3 << 20), (1 << 20) - below(3)};
    bool const wide = below(4) == 0;
    arrays.push_back({sizes[below(4)], wide ? std::size_t(512) << below(4) : std::size_t(1) << below(9)});
    large |= wide;
    sum += of(arrays.back());
  }
  CHECK(suffices(sum.bulk(), arrays));
  std::ranges::shuffle(arrays, random);
  CHECK(suffices(sum.bulk(), arrays));
  CHECK((large || !suffices(sum.bulk() - 1, arrays)));
  CHECK(sum.signal() == 0);
}

TEST_CASE("requirements: memory adds up, and one channel has room for the largest") {
  int const ranks = GENERATE(range(1, 9));
  auto const wide = channel::requirements(ranks, {.max_bytes = 5_MiB, .flags_per_source = 3}),
             many = channel::requirements(ranks, {.max_bytes = 1, .flags_per_source = 700});
  auto const arrays = requirements::of<int>(1000) + requirements::of<flag>(10);
  CHECK(arrays.bulk() == 4096);  // 4000 bytes, and a gap
  CHECK(arrays.signal() == 1536);
  CHECK(arrays.flags_per_source() == 0);

  auto const both = wide + arrays + many;
  CHECK(both.max_bytes() == 5_MiB);
  CHECK(both.flags_per_source() == 700);
  CHECK(both.bulk() == wide.bulk() + arrays.bulk());
  CHECK(both.signal() == many.signal() + arrays.signal());
  auto const same = channel::requirements(ranks, channel_options::of(both)) + arrays;
  CHECK(both.bulk() == same.bulk());
  CHECK(both.signal() == same.signal());

  auto const apart = wide.separate() + many;
  CHECK(apart.bulk() == wide.bulk() + many.bulk());
  CHECK(apart.signal() == wide.signal() + many.signal());
  CHECK(apart.flags_per_source() == 700);
  CHECK(apart.max_bytes() == 1);

  auto const thrice = 3 * (wide + arrays);
  CHECK(thrice.bulk() == wide.bulk() + 3 * arrays.bulk());
  CHECK(thrice.signal() == wide.signal() + 3 * arrays.signal());
  CHECK((0 * wide).flags_per_source() == 0);
}

TEST_CASE("requirements: a channel of its own memory, by the formula of docs/writing_kernels.md") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto const r = channel::requirements(ranks, {.max_bytes = 1_MiB, .flags_per_source = 1024});
    CHECK(r.signal() == round_up(std::size_t(2 * ranks * 1026 * 128) + (2 * ranks * 1026 * 128 < 1 << 20), 256));
    CHECK(r.bulk() >= 2_MiB);
  }
}

TEST_CASE("requirements: an operator asks for a channel that its constructor accepts") {
  int const ranks = GENERATE(range(1, 9));
  auto const agrees = [&]<class Operator, class Options>(std::type_identity<Operator>, Options const& o) {
    auto const r = Operator::requirements(ranks, o);
    CHECK(r.max_bytes() == Operator::max_bytes(ranks, o));
    CHECK(r.flags_per_source() == Operator::flags_per_source(ranks, o));
  };
  for (int m : {1, 33, 1000}) {
    agrees(std::type_identity<ag_gemm<bf16>>{}, ag_gemm_options{.max_m = m, .k = 64 * ranks, .gather = gather::k});
    agrees(std::type_identity<ag_gemm<f16>>{}, ag_gemm_options{.max_m = m, .k = 4096, .gather = gather::m});
    agrees(std::type_identity<gemm_rs<bf16>>{}, gemm_rs_options{.max_m = m, .max_n = 300, .k = 64});
    agrees(std::type_identity<gemm_ar<bf16>>{}, gemm_ar_options{.max_m = m, .max_n = 300, .k = 64});
    agrees(std::type_identity<gemm_all_scatter<bf16>>{}, gemm_all_scatter_options{.max_m = m, .max_n = 300, .k = 64});
  }
  auto const decode = flash_decode<f16>::requirements(
      ranks, {.max_batch = 3, .q_heads = 16, .kv_heads = 2, .head_dim = 128, .page_size = 16, .max_pages = 100});
  CHECK(decode.flags_per_source() == 1);
  CHECK(decode.signal() >= ll_buffer::bytes(ranks, ranks == 1 ? 1 : 6, decode_record{8, 128}.words()));
}

TEST_CASE("requirements: what no memory holds is refused, or stays the largest number") {
  CHECK_THROWS_AS(requirements::of<double>(SIZE_MAX / 8), out_of_space);
  requirements r = requirements::of<char>(SIZE_MAX / 4);
  for (int i = 0; i < 4; ++i) r += r;
  CHECK(r.bulk() == SIZE_MAX);
  CHECK((std::size_t(1000) * requirements::of<char>(SIZE_MAX / 8)).bulk() == SIZE_MAX);
  CHECK_THROWS_AS(channel_options::of(requirements::of<int>(1)), bad_argument);
}
