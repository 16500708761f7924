// Ranks that exist as long as the program, and their memory.
#pragma once
#include <fusewire/fusewire.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace fusewire::bench {

/// Device memory of one rank.
class buffer {
 public:
  buffer() = default;
  explicit buffer(std::size_t bytes) : bytes_(bytes) { check_hip(hipMalloc(&data_, bytes), "hipMalloc"); }
  buffer(buffer&& b) noexcept : data_(std::exchange(b.data_, nullptr)), bytes_(b.bytes_) {}
  buffer& operator=(buffer&& b) noexcept {
    std::swap(data_, b.data_);
    std::swap(bytes_, b.bytes_);
    return *this;
  }
  ~buffer() { (void)hipFree(data_); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The state of a rank for all shapes.
struct rank_base {
  explicit rank_base(world& w_, std::size_t bulk, std::size_t signal)
      : w(w_), h(w, {.bulk = bulk, .signal = signal, .wait_limit = std::chrono::seconds(2)}) {
    meet = h.allocate<barrier_state>(1);
    check_hip(hipEventCreate(&start), "hipEventCreate");
    check_hip(hipEventCreate(&stop), "hipEventCreate");
  }
  ~rank_base() {
    (void)hipEventDestroy(start);
    (void)hipEventDestroy(stop);
  }
  hipStream_t stream() const { return w.stream(); }

  /// Calls f on this rank. Returns the same on all ranks: the text of a failure on any of them, or an empty text.
  template <class F>
  std::string attempt(F f) {
    struct outcome {
      int rank_of_error;  // 0: none, 1: a consequence of another error, 2: a cause
      char what[400];
    } mine{};
    auto const failed = [&](int how, char const* what) {
      mine.rank_of_error = how;
      std::snprintf(mine.what, sizeof mine.what, "%s", what);
    };
    try {
      f();
    } catch (launch_abandoned const& e) {
      failed(1, e.what());
    } catch (std::exception const& e) {
      failed(2, e.what());
    }
    outcome worst{};
    for (auto const& o : w.exchange().all_gather(mine))
      if (o.rank_of_error > worst.rank_of_error) worst = o;
    return worst.what;
  }

  world& w;
  heap h;
  sym<barrier_state> meet;
  buffer scratch{256};  // sums at 0, MHz at 128
  hipEvent_t start, stop;
};

/// Rank threads that run one job after the other. A job that fails ends the threads, and the next run() starts new
/// ones.
template <class State>
class team {
 public:
  team(int ranks, std::function<std::unique_ptr<State>(world&)> make) : ranks_(ranks), make_(std::move(make)) {}
  ~team() { stop(); }

  /// Calls job(state) on every rank. Rethrows the exception of a rank. A job that takes longer than 90 s counts as a
  /// hang, and ends the program.
  void run(std::function<void(State&)> job) {
    std::unique_lock lock(m_);
    if (!host_.joinable()) start();
    job_ = std::move(job);
    done_ = 0;
    ++turn_;
    wake_.notify_all();
    if (!wake_.wait_for(lock, std::chrono::seconds(90), [&] { return done_ == ranks_ || ended_; })) {
      std::fprintf(stderr, "no answer from the ranks for 90 s; giving up\n");
      std::_Exit(3);
    }
    if (!ended_) return;
    lock.unlock();
    host_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void start() {
    ended_ = quit_ = false;
    failure_ = nullptr;
    int const first = turn_;
    host_ = std::thread([this, first] {
      std::exception_ptr failure;
      try {
        run_local(ranks_, [&](world& w) {
          auto const state = make_(w);
          for (int turn = first;;) {
            std::function<void(State&)> job;
            {
              std::unique_lock lock(m_);
              wake_.wait(lock, [&] { return quit_ || turn_ != turn; });
              if (quit_) return;
              turn = turn_;
              job = job_;
            }
            job(*state);
            w.barrier();
            std::lock_guard const lock(m_);
            if (++done_ == ranks_) wake_.notify_all();
          }
        });
      } catch (...) {
        failure = std::current_exception();
      }
      std::lock_guard const lock(m_);
      failure_ = failure;
      ended_ = true;
      wake_.notify_all();
    });
  }
  void stop() {
    if (!host_.joinable()) return;
    {
      std::lock_guard const lock(m_);
      quit_ = true;
      wake_.notify_all();
    }
    host_.join();
  }

  int ranks_;
  std::function<std::unique_ptr<State>(world&)> make_;
  std::mutex m_;
  std::condition_variable wake_;
  std::function<void(State&)> job_;
  int turn_ = 0, done_ = 0;
  bool quit_ = false, ended_ = false;
  std::exception_ptr failure_;
  std::thread host_;
};

}  // namespace fusewire::bench
