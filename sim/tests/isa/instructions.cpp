#include "instructions.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fusewire::sim::test {
namespace {

u8* aligned(std::vector<u8>& image) {
  return reinterpret_cast<u8*>((reinterpret_cast<u64>(image.data()) + 4095) & ~u64(4095));
}

}  // namespace

code::code(std::vector<std::string> const& texts) {
  std::string source = ".text\n";
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const name = "sequence_" + std::to_string(i);
    source += ".globl " + name + "\n.type " + name + ",@function\n.p2align 8\n" + name + ":\n" + texts[i] +
              "\ns_endpgm\n.size " + name + ", .-" + name + "\n";
  }
  auto const elf = assemble(source);
  image_.resize(image_size(elf) + 4096);
  loaded_ = load_module(elf, aligned(image_));
  entries_.resize(texts.size());
  for (auto const& f : loaded_.code->text->functions)
    entries_.at(std::stoul(f.name.substr(f.name.find('_') + 1))) = loaded_.code->text->index_of(f.begin);
}

std::string code::run(std::size_t i, wave& w) const {
  w.code = loaded_.code.get();
  w.pc = entries_.at(i);
  w.state = wave_state::running;
  w.faulted = false;
  w.fault_text->clear();
  execute(w, 1000000);
  return *w.fault_text;
}

test_wave::test_wave(u32 seed) : wave_(std::make_unique<wave>()), scratch_(256 * lanes) {
  std::mt19937 random(seed);
  for (auto& r : wave_->v)
    for (auto& x : r) x = random();
  for (auto& x : wave_->s) x = random();
  group_.lds.resize(65536);
  for (auto& x : group_.lds) x = u8(random());
  for (auto& x : scratch_) x = u8(random());
  wave_->scc = random() & 1;
  wave_->mode = 0x3f0;
  wave_->index = 0;
  wave_->group = &group_;
  wave_->memory = &memory_;
  wave_->scratch = scratch_.data();
  wave_->scratch_bytes = 256;
  wave_->fault_text = &fault_;
  wave_->faulted = false;
  wave_->executed = 0;
}

u64 edge_value(std::mt19937& random, int bits, bool floating) {
  u64 const any = random() | u64(random()) << 32;
  static constexpr u64 integers[] = {0,          1,          2,          31,           32,     63,
                                     0x7f,       0x80,       0xff,       0x7fff,       0x8000, 0xffff,
                                     0x7fffffff, 0x80000000, 0xffffffff, u64(1) << 63, ~u64(0)};
  if (!floating)
    return random() % 3 == 0 ? integers[random() % std::size(integers)] : random() % 3 == 0 ? any % 70 : any;
  static constexpr double numbers[] = {0.0,  -0.0, 1,     -1,    0.5,    2,      3.25, -7.75,  1e-3,   100,
                                       -1e4, 6e-8, 65504, 1e-40, -3e-39, 1e-310, 3e38, -1e308, 5e-324, 1e10};
  switch (random() % 6) {
    case 0: {
      double const x = numbers[random() % std::size(numbers)];
      return bits == 64 ? as<u64>(x) : bits == 32 ? as<u32>(float(x)) : as<u16>(f16(float(x)));
    }
    case 1: {  // infinity, quiet NaN
      bool const nan = random() & 1, negative = random() & 1;
      if (bits == 64) return (negative ? u64(1) << 63 : 0) | (nan ? 0x7ff8000000000000 : 0x7ff0000000000000);
      if (bits == 32) return (negative ? 0x80000000 : 0) | (nan ? 0x7fc00000 : 0x7f800000);
      return (negative ? 0x8000 : 0) | (nan ? 0x7e00 : 0x7c00);
    }
    default: {
      double const x = (double(random()) / 4294967296.0 - 0.5) * std::ldexp(1.0, int(random() % 24) - 8);
      return bits == 64 ? as<u64>(x) : bits == 32 ? as<u32>(float(x)) : as<u16>(f16(float(x)));
    }
  }
}

namespace {

constexpr int destination = 10, first_source = 2, scalar_source = 20;

std::string registers(char file, int first, int bits) {
  std::string const n = std::to_string(first);
  return bits == 64 ? std::string(1, file) + "[" + n + ":" + std::to_string(first + 1) + "]" : file + n;
}

u64 mask_of(int bits) { return bits == 64 ? ~u64(0) : (u64(1) << bits) - 1; }

double number(u64 x, int bits) {
  return bits == 64 ? as<double>(x) : bits == 32 ? as<float>(u32(x)) : float(as<f16>(u16(x)));
}

bool agree(u64 got, u64 want, int bits, bool floating, match how) {
  if (got == want) return true;
  if (!floating) return false;
  double const a = number(got, bits), b = number(want, bits);
  if (a != a || b != b) return a != a && b != b;
  if (how == match::exact) return false;
  u64 const sign = u64(1) << (bits - 1);
  if ((got ^ want) & sign) return false;
  return (got > want ? got - want : want - got) <= 2;
}

}  // namespace

std::string lane_suite::text(entry const& e, form how) {
  std::string line = e.mnemonic + (how == form::modified ? "_e64 " : " ") + registers('v', destination, e.result.bits);
  std::size_t const given = e.sources.size() - e.options.accumulates;
  for (std::size_t i = 0; i < given; ++i) {
    auto const reg =
        registers(how == form::scalar && i == 0 ? 's' : 'v',
                  how == form::scalar && i == 0 ? scalar_source : first_source + 2 * int(i), e.sources[i].bits);
    bool const touched = how == form::modified && e.sources[i].floating;
    line += ", " + (touched && i == 0 ? "-" + reg : touched && i == 1 ? "|" + reg + "|" : reg);
  }
  return line;
}

void lane_suite::check(variant const& v, code const& assembled, std::size_t index) {
  entry const& e = *v.what;
  int failures = 0;
  for (u32 seed = 1; seed <= 8 && failures == 0; ++seed) {
    test_wave w(seed);
    std::mt19937 random(seed * 77 + 5);
    auto const set = [&](int reg, int lane, u64 x) { w->v[reg][lane] = u32(x), w->v[reg + 1][lane] = u32(x >> 32); };
    for (std::size_t i = 0; i < e.sources.size(); ++i)
      for (int l = 0; l < lanes; ++l) {
        u64 const noise = e.sources[i].bits == 16 ? u64(random() & 0xffff) << 16 : 0;
        int const reg = e.options.accumulates && i + 1 == e.sources.size() ? destination : first_source + 2 * int(i);
        set(reg, l,
            (edge_value(random, e.sources[i].bits, e.sources[i].floating) & mask_of(e.sources[i].bits)) | noise);
      }
    w.set_s64(scalar_source, edge_value(random, e.sources[0].bits, e.sources[0].floating));
    u64 const exec = seed == 1 ? ~u64(0) : random() | u64(random()) << 32;
    w.set_exec(exec);
    auto const before = std::make_unique<wave>(*w);
    INFO(v.text);
    REQUIRE(assembled.run(index, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      std::vector<u64> sources;
      for (std::size_t i = 0; i < e.sources.size(); ++i) {
        bool const last = e.options.accumulates && i + 1 == e.sources.size();
        int const reg = last ? destination : first_source + 2 * int(i);
        u64 x = v.how == form::scalar && i == 0 ? before->s[scalar_source] | u64(before->s[scalar_source + 1]) << 32
                                                : before->v[reg][l] | u64(before->v[reg + 1][l]) << 32;
        x &= mask_of(e.sources[i].bits);
        u64 const sign = u64(1) << (e.sources[i].bits - 1);
        if (v.how == form::modified && e.sources[i].floating && !last) x = i == 0 ? x ^ sign : i == 1 ? x & ~sign : x;
        sources.push_back(x);
      }
      u64 const old = before->v[destination][l] | u64(before->v[destination + 1][l]) << 32, got = w.v64(destination, l);
      bool const on = exec >> l & 1;
      u64 const want = e.reference(sources), m = mask_of(e.result.bits);
      bool good = on ? agree(got & m, want & m, e.result.bits, e.result.floating, e.options.how) : got == old;
      if (on && e.result.bits == 16)
        good = good && (got >> 16 & 0xffff) == (e.options.keeps_high ? old >> 16 & 0xffff : 0);
      if (on && e.result.bits <= 32) good = good && got >> 32 == old >> 32;
      if (!good && failures++ == 0) {
        std::string operands;
        for (u64 const s : sources) operands += " " + hex(s);
        FAIL_CHECK(v.text << " lane " << l << (on ? "" : " (off)") << " of" << operands << ": " << hex(got)
                          << ", expected " << hex(on ? want : old));
      }
    }
    for (int r = 0; r < 32; ++r)
      if (r != destination && r != destination + 1 && std::memcmp(before->v[r], w->v[r], sizeof w->v[r]) != 0)
        FAIL_CHECK(v.text << " changes v" << r);
    if (std::memcmp(before->s, w->s, sizeof w->s) != 0 || before->scc != w->scc)
      FAIL_CHECK(v.text << " changes scalar registers");
  }
}

void lane_suite::run() {
  std::vector<variant> variants;
  std::vector<std::string> texts;
  for (auto const& e : entries_)
    for (auto how : {form::plain, form::scalar, form::modified}) {
      if (how == form::scalar && !e.options.scalar_source) continue;
      if (how == form::modified && (!e.options.modifiers || !e.sources[0].floating)) continue;
      variants.push_back({&e, how, text(e, how)});
      texts.push_back(variants.back().text);
    }
  code const assembled(texts);
  for (std::size_t i = 0; i < variants.size(); ++i) check(variants[i], assembled, i);
}

}  // namespace fusewire::sim::test
