// How ranks of one job recognise each other: each side proves that it knows the job's secret, without sending it,
// before the other believes anything else.
//
//   hub --challenge--> any client --hello: nonce, rank, proof over both and the challenge--> hub
//   hub --accepted: proof over nonce and challenge--> rank           a wrong proof closes the connection
//
// This keeps other programs out of a job. It neither hides nor protects what ranks send afterwards.
#pragma once
#include <sys/stat.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include <fusewire/ranks/environment.hpp>
#include <fusewire/ranks/place.hpp>
#include <fusewire/ranks/tcp_socket.hpp>

namespace fusewire::detail {

/// SipHash-2-4 (Aumasson, Bernstein): without the key, the hash of anything looks like a random number.
struct siphash_key {
  std::uint64_t low, high;
};
inline std::uint64_t siphash(siphash_key k, void const* data, std::size_t bytes) {
  std::uint64_t a = k.low ^ 0x736f6d6570736575, b = k.high ^ 0x646f72616e646f6d, c = k.low ^ 0x6c7967656e657261,
                d = k.high ^ 0x7465646279746573;
  auto const rounds = [&](int n) {
    while (n-- > 0) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  };
  auto const absorb = [&](std::uint64_t word) { d ^= word, rounds(2), a ^= word; };
  auto const* p = static_cast<std::byte const*>(data);
  std::uint64_t word = 0;
  for (std::size_t left = bytes; left >= sizeof word; left -= sizeof word, p += sizeof word)
    std::memcpy(&word, p, sizeof word), absorb(word);
  word = 0;
  std::memcpy(&word, p, bytes % sizeof word);
  absorb(word | std::uint64_t(bytes) << 56);
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

class job_key {
 public:
  /// `run` distinguishes jobs that were given one secret.
  job_key(std::string const& secret, std::string const& run) {
    std::string const all = secret + '\0' + run;
    key_ = {siphash({0, 0}, all.data(), all.size()), siphash({0, 1}, all.data(), all.size())};
  }
  /// Over the whole greeting `g` except for the proof itself.
  std::uint64_t proof_of_rank(std::uint64_t challenge, greeting const& g) const {
    struct {
      std::uint64_t challenge;
      greeting said;
    } all{challenge, g};
    static_assert(std::has_unique_object_representations_v<decltype(all)>);
    all.said.proof = 0;
    return siphash(key_, &all, sizeof all);
  }
  std::uint64_t proof_of_hub(std::uint64_t challenge, std::uint64_t nonce) const {
    std::uint64_t const both[] = {nonce, challenge};
    return siphash(key_, both, sizeof both);
  }

 private:
  siphash_key key_;
};

/// The secret of a job that was given none. Rank 0 leaves a random one in a file that only this user can read, and
/// removes the file when all ranks have come. A process that would use the same port belongs to another user, or runs
/// on another host.
class job_file {
 public:
  /// Fails: bootstrap_failed.
  explicit job_file(int port) : path_(path_of(port)), secret_(hexadecimal(random_bits()) + hexadecimal(random_bits())) {
    std::string const fresh = text(path_, ".", hexadecimal(random_bits()));
    descriptor const file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    bool ok = bool(file) && ::fchmod(file.get(), 0600) == 0;  // whatever the umask
    ok = ok && ::write(file.get(), secret_.data(), secret_.size()) == ssize_t(secret_.size());
    ok = ok && ::rename(fresh.c_str(), path_.c_str()) == 0;
    int const error = errno;
    if (!ok && file) ::unlink(fresh.c_str());
    if (!ok)
      throw bootstrap_failed(
          text("the job's secret cannot be left in ", path_, ": ", system_error(error), "; ", instead));
  }
  job_file(job_file const&) = delete;
  ~job_file() { ::unlink(path_.c_str()); }

  std::string const& secret() const { return secret_; }

  /// The secret that rank 0 has left there. "", with the reason in `problem`, if there is no file that this user has
  /// written.
  static std::string read(int port, std::string& problem) {
    std::string const path = path_of(port);
    descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file)
      return problem = text("the job's secret is not in ", path, " (", system_error(errno), "); ", instead), "";
    struct stat s{};
    bool const ours =
        ::fstat(file.get(), &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & 077) == 0;
    if (!ours) return problem = text(path, " is not a file that this user alone can read; ", instead), "";
    char secret[64];
    auto const n = ::read(file.get(), secret, sizeof secret);
    if (n <= 0) return problem = text(path, " is empty; ", instead), "";
    return {secret, std::size_t(n)};
  }

 private:
  static constexpr char instead[] =
      "instead of a file, FUSEWIRE_JOB can be one random text of 16 characters or more for all ranks of a job";

  static std::string hexadecimal(std::uint64_t x) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(x));
    return digits;
  }
  static std::string path_of(int port) {
    auto const runtime = variable("XDG_RUNTIME_DIR");
    bool const usable = runtime && ::access(runtime->c_str(), W_OK | X_OK) == 0;
    return text(usable ? *runtime : "/tmp", "/fusewire-", ::geteuid(), "-", port);
  }

  std::string const path_, secret_;
};

}  // namespace fusewire::detail
