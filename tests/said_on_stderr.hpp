// What the program says on standard error meanwhile.
#pragma once
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

class said_on_stderr {
 public:
  said_on_stderr() : file_(memfd_create("stderr", MFD_CLOEXEC)), before_(dup(STDERR_FILENO)) {
    dup2(file_, STDERR_FILENO);
  }
  said_on_stderr(said_on_stderr const&) = delete;
  ~said_on_stderr() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(file_);
  }
  std::string text() const {
    std::string all(1 << 16, '\0');
    ssize_t const n = pread(file_, all.data(), all.size(), 0);
    all.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return all;
  }

 private:
  int file_, before_;
};
