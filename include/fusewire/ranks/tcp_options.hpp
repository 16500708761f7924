// The rank and the job of a process, by the variables that launchers set.
//
//   RANK  WORLD_SIZE  LOCAL_RANK        the rank of this process, the number of ranks, its rank on this host; where
//   they
//                                       are not set, those of srun and mpirun: environment.hpp has their names
//   MASTER_ADDR  MASTER_PORT            where rank 0 listens; name or address, IPv4 or IPv6
//   FUSEWIRE_MASTER_PORT                another port, where MASTER_PORT is in use by another program
//   FUSEWIRE_JOB                        the job's secret: a random text of 16 characters or more. Without it rank 0
//                                       makes one and leaves it in a file that only this user can read,
//                                       $XDG_RUNTIME_DIR/fusewire-UID-PORT, or in /tmp
//   TORCHELASTIC_RUN_ID                 with the secret, says which job it is
//   TORCHELASTIC_RESTART_COUNT          and which start of it: a process of an earlier start cannot join a later one
//   FUSEWIRE_CONNECT_SECONDS            how long ranks wait for each other to start (60)
//   FUSEWIRE_COLLECTIVE_SECONDS         how long ranks wait for each other in a collective on the host (600)
#pragma once
#include <fusewire/core/world_view.hpp>
#include <fusewire/ranks/environment.hpp>
#include <fusewire/ranks/layout_hash.hpp>

namespace fusewire {

/// How ranks that are processes find each other. from_environment() reads the options from the launcher's variables.
struct tcp_options {
  int rank = 0, size = 1;             // this rank; ranks of the job
  int local_rank = 0;                 // among the ranks of this host
  std::string address = "127.0.0.1";  // of rank 0
  int port = 29500;                   // where rank 0 listens
  std::string secret = {};            // of the job; if empty, rank 0 makes one and leaves it in a file
  std::string run = {};               // distinguishes jobs with one secret or one port
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);  // how long ranks wait for each other to start
  /// How long ranks wait for each other in a collective
  std::chrono::milliseconds collective_timeout = std::chrono::seconds(600);
  /// How long a rank that has failed waits for the others to leave
  std::chrono::milliseconds failure_timeout = std::chrono::seconds(15);
  std::uint64_t layout = detail::layout_hash;  // ranks with the same hash can share memory

  /// Reads the options from a launcher's variables. Fails: bad_argument when a variable is missing, or is not a number
  /// in its range.
  static tcp_options from_environment(std::source_location where = std::source_location::current()) {
    using detail::number_in, detail::variable;
    tcp_options o;
    detail::launcher_variables const& by = detail::launcher_of_process();
    o.size = int(number_in(by.size, 1, max_ranks, {}, where));
    o.rank = int(number_in(by.rank, 0, o.size - 1, {}, where));
    o.local_rank = int(number_in(by.local_rank, 0, max_ranks - 1, o.rank, where));
    auto const near = by.near ? variable(by.near) : std::nullopt;
    require(!near || variable("MASTER_ADDR") || *near == (by.counts_hosts ? "1" : std::to_string(o.size)), where,
            "MASTER_ADDR is not set, and ", by.near, " = ", *near, " of ", o.size,
            " ranks; expected the name of rank 0's host, because there are several hosts");
    o.address = variable("MASTER_ADDR").value_or(o.address);
    // torchrun's agent may itself listen on MASTER_PORT
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
