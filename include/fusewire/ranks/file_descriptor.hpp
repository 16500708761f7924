// File descriptors that are closed with their owner, and that a forked child does not keep open.
//
// A child of fork() has every descriptor of its parent. A rank's peers notice its death by its closed connections. A
// child that lived on would hide that, and a child that ran the rank's destructors would speak for the rank. So in the
// child each of these descriptors refers to /dev/null: what the child's copies of the objects send goes nowhere, and
// the number is not reused.
//
// None of them is 0, 1 or 2, even if the program was started without these: what a program prints must not reach a
// peer.
#pragma once
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace fusewire::detail {

inline std::string system_error(int e) { return std::strerror(e); }

/// All descriptors that objects of this process own.
class owned_descriptors {
 public:
  static owned_descriptors& get() {
    static owned_descriptors* const all = new owned_descriptors;  // outlives all descriptors at exit
    return *all;
  }
  void add(int fd) {
    std::lock_guard const lock(m_);
    all_.insert(fd);
  }
  void close(int fd) {
    std::lock_guard const lock(m_);
    all_.erase(fd);
    ::close(fd);
  }

 private:
  owned_descriptors() {
    ::pthread_atfork([] { get().m_.lock(); }, [] { get().m_.unlock(); },
                     [] {
                       get().close_in_child();
                       get().m_.unlock();
                     });
  }
  void close_in_child() const {
    int const nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd : all_) nothing >= 0 ? ::dup3(nothing, fd, O_CLOEXEC) : ::close(fd);
    if (nothing >= 0) ::close(nothing);
  }

  std::mutex m_;
  std::set<int> all_;
};

class descriptor {
 public:
  /// Owns `fd`, unless it is -1; the caller looks at errno in that case.
  explicit descriptor(int fd = -1) : fd_(fd < 0 || fd > STDERR_FILENO ? fd : moved_up(fd)) {
    if (fd_ < 0) return;
    try {
      owned_descriptors::get().add(fd_);
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) owned_descriptors::get().close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  static int moved_up(int fd) {
    int const above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    ::close(fd);
    errno = error;
    return above;
  }

  int fd_;
};

}  // namespace fusewire::detail
