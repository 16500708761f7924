// Which rank of which job a process is, as launchers say it.
//
//   RANK  WORLD_SIZE  LOCAL_RANK        who this process is
//   MASTER_ADDR  MASTER_PORT            where rank 0 listens; name or address, IPv4 or IPv6
//   FUSEWIRE_MASTER_PORT                another port, where MASTER_PORT is somebody else's
//   FUSEWIRE_JOB                        the job's secret: a random text of 16 characters or more. Without it rank 0
//                                       makes one and leaves it in a file that only this user can read,
//                                       $XDG_RUNTIME_DIR/fusewire-UID-PORT, or in /tmp
//   TORCHELASTIC_RUN_ID                 with the secret, says which job it is
//   TORCHELASTIC_RESTART_COUNT          and which start of it: a process left of an earlier start joins no later one
//   FUSEWIRE_CONNECT_SECONDS            how long ranks wait for each other to start (60)
//   FUSEWIRE_COLLECTIVE_SECONDS         how long ranks wait for each other in a collective on the host (600)
#pragma once
#include <fusewire/core/world_view.hpp>
#include <fusewire/runtime/environment.hpp>
#include <fusewire/runtime/layout.hpp>

namespace fusewire {

struct tcp_options {
  int rank = 0, size = 1;
  int local_rank = 0;                 // among the ranks of this host
  std::string address = "127.0.0.1";  // of rank 0
  int port = 29500;
  std::string secret = {};  // of the job; empty: rank 0 makes one and leaves it in a file
  std::string run = {};     // sets apart jobs with one secret or one port
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds collective_timeout = std::chrono::seconds(600);
  /// How long a rank that has failed waits for the others to leave
  std::chrono::milliseconds failure_timeout = std::chrono::seconds(15);
  std::uint64_t layout = detail::layout_hash;  // ranks with the same can share memory

  /// What a launcher set. Fails: bad_argument when a variable is missing or not a number that makes sense.
  static tcp_options from_environment(std::source_location where = std::source_location::current()) {
    using detail::number_in, detail::variable;
    tcp_options o;
    o.size = int(number_in("WORLD_SIZE", 1, max_ranks, {}, where));
    o.rank = int(number_in("RANK", 0, o.size - 1, {}, where));
    o.local_rank = int(number_in("LOCAL_RANK", 0, max_ranks - 1, o.rank, where));
    o.address = variable("MASTER_ADDR").value_or(o.address);
    // torchrun's agent may keep a listener of its own on MASTER_PORT
    bool const taken = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    o.port = int(number_in("MASTER_PORT", 1, 65535 - taken, o.port, where)) + taken;
    o.port = int(number_in("FUSEWIRE_MASTER_PORT", 1, 65535, o.port, where));
    o.secret = variable("FUSEWIRE_JOB").value_or("");
    require(o.secret.empty() || o.secret.size() >= 16, where, "FUSEWIRE_JOB has ", o.secret.size(),
            " characters; expected 16 or more, taken at random");
    o.run = variable("TORCHELASTIC_RUN_ID").value_or("");
    if (auto const start = variable("TORCHELASTIC_RESTART_COUNT")) o.run += text("\nstart ", *start);
    o.connect_timeout = std::chrono::seconds(number_in("FUSEWIRE_CONNECT_SECONDS", 1, 86400, 60, where));
    o.collective_timeout = detail::collective_limit(where);
    return o;
  }
};

}  // namespace fusewire
