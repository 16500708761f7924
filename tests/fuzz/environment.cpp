// What a launcher may have set: any text in any of the variables. It is refused by name, or makes sense.
#include "input.hpp"

#include <fusewire/ranks/tcp_options.hpp>

using namespace fuzz;

namespace {

std::string value(input& in) {
  switch (in.below(8)) {
    case 0: return text(in.below(80));
    case 1: return text(in.integer<std::int64_t>());
    case 2: return text(in.integer<std::uint64_t>());
    case 3:
      return in.one_of<char const*>(
          {"", " ", "0x10", "1e3", "+1", "-0", " 7", "7 ", "65535", "65536", "True", "99999999999999999999"});
    case 4: return text(in.below(70), char(1 + in.below(255)));
    default: {
      std::string s;
      for (int n = in.below(40); n > 0; --n) s += char(1 + in.below(255));
      return s;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input in(data, size);
  for (char const* name : {"WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "FUSEWIRE_MASTER_PORT",
                           "FUSEWIRE_CONNECT_SECONDS", "FUSEWIRE_COLLECTIVE_SECONDS", "TORCHELASTIC_USE_AGENT_STORE",
                           "FUSEWIRE_JOB", "TORCHELASTIC_RUN_ID"}) {
    if (in.rarely()) ::unsetenv(name);
    else must(::setenv(name, value(in).c_str(), 1) == 0, "setenv");
  }
  try {
    auto const o = tcp_options::from_environment();
    must(o.size >= 1 && o.size <= max_ranks && o.rank >= 0 && o.rank < o.size && o.local_rank >= 0 &&
             o.local_rank < max_ranks,
         "ranks");
    must(o.port >= 1 && o.port <= 65535 && !o.address.empty(), "where rank 0 listens");
    must(o.connect_timeout.count() >= 1000 && o.collective_timeout.count() >= 1000 &&
             o.connect_timeout <= std::chrono::hours(24),
         "times");
    must(o.secret.empty() || o.secret.size() >= 16, "the secret");
    must(started_as_processes(), "without RANK or WORLD_SIZE");
  } catch (bad_argument const&) {}
  return 0;
}
