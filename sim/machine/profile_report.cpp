#include "machine/profile_report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "machine/json.hpp"

namespace fusewire::sim {
namespace {

constexpr std::size_t hottest = 12;  // instructions that are listed

__attribute__((format(printf, 2, 3))) void say(std::string& text, char const* format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  text += line;
}

double share(u64 part, double of) { return of > 0 ? 100 * static_cast<double>(part) / of : 0; }

void kernel_text(std::string& text, kernel_profile const& k, node const& n) {
  timing const& t = n.settings.rates;
  auto const cycles = static_cast<double>(k.cycles), waves = static_cast<double>(k.wave_cycles);
  double const cus = n.settings.cus, simds = cus * 4;
  say(text, "  GPU %d, %.100s\n", k.gpu, k.name.c_str());
  say(text,
      "    %llu launches, %.2f simulated us each; %llu workgroups, %llu waves, %.1f at a time on a SIMD; %llu "
      "instructions\n",
      static_cast<unsigned long long>(k.launches), t.us(k.cycles) / static_cast<double>(k.launches),
      static_cast<unsigned long long>(k.workgroups), static_cast<unsigned long long>(k.waves), waves / cycles / simds,
      static_cast<unsigned long long>(k.instructions));
  say(text, "    busy: MFMA %.1f %%, VALU %.1f %%, LDS %.1f %% (bank conflicts %.1f %%)\n",
      share(k.matrix, cycles * simds), share(k.vector, cycles * simds), share(k.lds, cycles * cus),
      share(k.lds_conflicts, cycles * cus));
  text += "    waves wait, % of their time:";
  u64 all = 0;
  for (std::size_t i = 0; i < stalls; ++i) {
    all += k.waited[i];
    if (k.waited[i] * 1000 >= k.wave_cycles)
      say(text, " %s %.1f,", name_of(static_cast<stall>(i)), share(k.waited[i], waves));
  }
  say(text, " none %.1f\n", 100 - share(all, waves));
  auto const rate = [&](u64 bytes) { return cycles > 0 ? static_cast<double>(bytes) * t.mhz / 1e3 / cycles : 0; };
  traffic const& b = k.bytes;
  say(text, "    MB (GB/s): L1 %.2f (%.0f), L2 %.2f (%.0f), MALL %.2f (%.0f), HBM %.2f (%.0f, %.1f %% of its peak)",
      static_cast<double>(b.l1) / 1e6, rate(b.l1), static_cast<double>(b.l2) / 1e6, rate(b.l2),
      static_cast<double>(b.mall) / 1e6, rate(b.mall), static_cast<double>(b.hbm) / 1e6, rate(b.hbm),
      100 * rate(b.hbm) / t.hbm_gbs);
  if (b.link_in | b.link_out)
    say(text, ", links in %.2f (%.1f), out %.2f (%.1f)", static_cast<double>(b.link_in) / 1e6, rate(b.link_in),
        static_cast<double>(b.link_out) / 1e6, rate(b.link_out));
  text += "\n";
  if (b.writebacks | b.flags_raised | b.polls)
    say(text, "    %llu writebacks of %llu lines, %llu flags raised, %llu polls\n",
        static_cast<unsigned long long>(b.writebacks), static_cast<unsigned long long>(b.lines_written_back),
        static_cast<unsigned long long>(b.flags_raised), static_cast<unsigned long long>(b.polls));
}

void hot_text(std::string& text, program const* code, hot_spots const& h, u64 all) {
  std::vector<u32> order(h.waited.size());
  for (u32 i = 0; i < order.size(); ++i) order[i] = i;
  std::size_t const n = std::min(hottest, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(n),
                            [&](u32 a, u32 b) { return h.waited[a] > h.waited[b]; });
  for (std::size_t i = 0; i < n && h.waited[order[i]] * 200 >= all; ++i) {
    location const at = where_is(*code, order[i]);
    say(text, "    %5.1f %%  %-56.100s %10llu times  %s\n", share(h.waited[order[i]], static_cast<double>(all)),
        at.instruction.c_str(), static_cast<unsigned long long>(h.executed[order[i]]), at.source.c_str());
  }
}

std::string key_of(stall s) {
  std::string key = name_of(s);
  std::ranges::replace(key, ' ', '_');
  return key;
}

void kernel_json(std::string& text, kernel_profile const& k, node const& n) {
  timing const& t = n.settings.rates;
  auto const cycles = static_cast<double>(k.cycles);
  double const cus = n.settings.cus, simds = cus * 4;
  text += "    {\"kernel\": " + json_string(k.name);
  auto const number = [&](char const* name, u64 value) {
    say(text, ", \"%s\": %llu", name, static_cast<unsigned long long>(value));
  };
  auto const part = [&](char const* name, u64 of, double all) {
    say(text, ", \"%s\": %.5f", name, share(of, all) / 100);
  };
  number("gpu", static_cast<u64>(k.gpu)), number("launches", k.launches);
  say(text, ", \"simulated_us\": %.4f", t.us(k.cycles));
  number("workgroups", k.workgroups), number("waves", k.waves), number("instructions", k.instructions);
  say(text, ", \"waves_per_simd\": %.3f", cycles > 0 ? static_cast<double>(k.wave_cycles) / cycles / simds : 0);
  part("mfma_busy", k.matrix, cycles * simds), part("valu_busy", k.vector, cycles * simds),
      part("lds_busy", k.lds, cycles * cus), part("lds_conflicts", k.lds_conflicts, cycles * cus);
  text += ", \"waits\": {";
  for (std::size_t i = 0; i < stalls; ++i)
    say(text, "%s\"%s\": %.5f", i ? ", " : "", key_of(static_cast<stall>(i)).c_str(),
        share(k.waited[i], static_cast<double>(k.wave_cycles)) / 100);
  text += "}";
  traffic const& b = k.bytes;
  number("l1_bytes", b.l1), number("l2_bytes", b.l2), number("mall_bytes", b.mall), number("hbm_bytes", b.hbm);
  part("hbm_utilisation", b.hbm, cycles * t.bytes_per_cycle(t.hbm_gbs)),
      part("mall_utilisation", b.mall, cycles * t.bytes_per_cycle(t.mall_gbs));
  part("l2_utilisation", b.l2, cycles * t.l2_bytes * memory_paths::l2_channels * n.xcds());
  number("link_bytes_in", b.link_in), number("link_bytes_out", b.link_out), number("host_bytes", b.host);
  number("writebacks", b.writebacks), number("lines_written_back", b.lines_written_back),
      number("flags_raised", b.flags_raised), number("polls", b.polls);
  text += "}";
}

}  // namespace

std::string profile_text(timeline const& time, node const& n) {
  std::string text;
  timing const& t = n.settings.rates;
  say(text, "fusewire-sim: a projection, at %.0f MHz: %.2f simulated us\n", t.mhz, t.us(time.now()));
  u64 waited = 0;
  for (auto const& [key, k] : time.profiles()) {
    kernel_text(text, k, n);
    for (u64 const w : k.waited) waited += w;
  }
  u64 const length = time.now();
  for (int a = 0; a < n.settings.gpus; ++a)
    for (int b = 0; b < n.settings.gpus; ++b)
      if (auto const& l = time.paths().link_of(a, b); a != b && l.bytes)
        say(text, "  link of GPU %d to GPU %d: %.2f MB, %.1f %% busy\n", a, b, static_cast<double>(l.bytes) / 1e6,
            length ? 100 * l.wire.busy() / static_cast<double>(length) : 0);
  if (waited) text += "  where waves waited, % of all waiting:\n";
  std::vector<hot_spots> merged;  // each GPU has loaded its own copy of a program
  for (auto const& [code, h] : time.hot()) {
    auto const same = std::ranges::find_if(merged, [&](hot_spots const& m) { return same_code(*m.of, *code); });
    hot_spots& into = same != merged.end() ? *same : merged.emplace_back();
    if (!into.of) into.of = h.of, into.waited.resize(h.waited.size()), into.executed.resize(h.waited.size());
    for (std::size_t i = 0; i < h.waited.size(); ++i) into.waited[i] += h.waited[i], into.executed[i] += h.executed[i];
  }
  for (hot_spots const& h : merged) hot_text(text, h.of.get(), h, waited);
  return text;
}

std::string profile_json(timeline const& time, node const& n) {
  std::string text;
  timing const& t = n.settings.rates;
  say(text, "{\n  \"kind\": \"projection\", \"mhz\": %.0f, \"simulated_us\": %.4f,\n  \"kernels\": [\n", t.mhz,
      t.us(time.now()));
  char const* comma = "";
  for (auto const& [key, k] : time.profiles()) text += std::exchange(comma, ",\n"), kernel_json(text, k, n);
  text += "\n  ],\n  \"links\": [\n";
  comma = "";
  for (int a = 0; a < n.settings.gpus; ++a)
    for (int b = 0; b < n.settings.gpus; ++b)
      if (auto const& l = time.paths().link_of(a, b); a != b && l.bytes)
        say(text, "%s    {\"from\": %d, \"to\": %d, \"bytes\": %llu, \"busy\": %.5f}", std::exchange(comma, ",\n"), a,
            b, static_cast<unsigned long long>(l.bytes),
            time.now() ? l.wire.busy() / static_cast<double>(time.now()) : 0);
  return text + "\n  ]\n}\n";
}

}  // namespace fusewire::sim
