// The engine over UCX: ucp_put_nbx of the bytes, ucp_worker_fence, ucp_put_nbx of the flag.
//
//   fence | bytes | fence | flag        of one put; fences order the operations of each endpoint
//
// The second fence is promise 1. The first is promise 2, with reserve: it orders all puts to a peer.
// A put is named by progress() when UCX has called back for both parts: their sources may be written again.
#include <fusewire/nodes/ucx_engine.hpp>
#include <fusewire/ranks/environment.hpp>
#include <ucp/api/ucp.h>

#include <cstring>
#include <deque>
#include <map>
#include <utility>

namespace fusewire {
namespace {

std::string in_words(unsigned major, unsigned minor, unsigned release) {
  return text(major, '.', minor, '.', release);
}

void check_ucx(ucs_status_t s, char const* call, std::source_location where = std::source_location::current()) {
  require<runtime_failure>(s == UCS_OK, where, "ucx_engine: ", call, ": ", ucs_status_string(s));
}

/// Whether UCX_TLS leaves one transport between two processes.
bool has_one_lane() {
  auto const lanes = detail::variable("UCX_MAX_RMA_LANES");
  if (lanes && *lanes != "1") return false;
  std::string const names = detail::variable("UCX_TLS").value_or("");
  int others = 0;
  for (std::size_t at = 0; at <= names.size();) {
    std::size_t const end = std::min(names.find(',', at), names.size());
    if (auto const name = names.substr(at, end - at); name != "self") ++others;
    at = end + 1;
  }
  return names.find_first_of("^\\") == names.npos && names != "all" && !names.empty() && others == 1;
}

class ucx_engine final : public engine {
 public:
  ucx_engine(ucx_options const& o, std::source_location where) : options_(o) {
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    bool const orders_all_lanes = std::pair(major, minor) >= std::pair(1u, 16u);
    require<runtime_failure>(
        orders_all_lanes || has_one_lane(), where, "ucx_engine: UCX ", in_words(major, minor, release),
        " orders the puts of one lane only, and UCX_TLS = ", detail::variable("UCX_TLS").value_or("(not set)"),
        " may give it several; expected UCX 1.16 or newer, or UCX_TLS = tcp or another one with UCX_MAX_RMA_LANES = 1");
    ucp_config_t* config = nullptr;
    check_ucx(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read", where);
    // Older ones have no choice, and the user's counts
    if (std::pair(major, minor) >= std::pair(1u, 19u) && !detail::variable("UCX_FENCE_MODE"))
      (void)ucp_config_modify(config, "FENCE_MODE", "ep_based");
    ucp_params_t p{};
    p.field_mask = UCP_PARAM_FIELD_FEATURES;
    p.features = UCP_FEATURE_RMA;
    ucs_status_t const made = ucp_init(&p, config, &context_);
    ucp_config_release(config);
    check_ucx(made, "ucp_init", where);
    ucp_worker_params_t w{};
    w.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    w.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    if (auto const s = ucp_worker_create(context_, &w, &worker_); s != UCS_OK) {
      ucp_cleanup(context_);
      check_ucx(s, "ucp_worker_create", where);
    }
  }
  ~ucx_engine() override {
    for (auto& [rank, p] : peers_) {
      for (auto key : p.keys)
        if (key) ucp_rkey_destroy(key);
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      if (p.endpoint) finish(ucp_ep_close_nbx(p.endpoint, &how));
    }
    finish(flush_);
    for (int i = 0; i < 1000 && !under_way_.empty(); ++i) ucp_worker_progress(worker_);
    for (auto& r : exposed_) ucp_mem_unmap(context_, r.handle);
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  ucx_engine(ucx_engine const&) = delete;

  std::string name() const override { return "UCX " + ucx_version(); }

  std::vector<std::byte> address() override {
    ucp_address_t* at = nullptr;
    std::size_t bytes = 0;
    check_ucx(ucp_worker_get_address(worker_, &at, &bytes), "ucp_worker_get_address");
    auto const* first = reinterpret_cast<std::byte const*>(at);
    std::vector<std::byte> mine(first, first + bytes);
    ucp_worker_release_address(worker_, at);
    return mine;
  }
  void connect(int rank, std::span<std::byte const> address) override {
    peer& p = peers_[rank];
    p.self = this, p.rank = rank;
    ucp_ep_params_t e{};
    e.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    e.address = reinterpret_cast<ucp_address_t const*>(address.data());
    e.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    if (options_.peer_failures) {
      e.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
      e.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      e.err_handler.cb = [](void* to, ucp_ep_h, ucs_status_t s) { static_cast<peer*>(to)->fails(s); };
      e.err_handler.arg = &p;
    }
    check_ucx(ucp_ep_create(worker_, &e, &p.endpoint), "ucp_ep_create");
  }
  int expose(void* at, std::size_t bytes) override {
    ucp_mem_map_params_t p{};
    p.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    p.address = at, p.length = bytes;
    region r{at, nullptr};
    check_ucx(ucp_mem_map(context_, &p, &r.handle), "ucp_mem_map");
    exposed_.push_back(r);
    return int(exposed_.size()) - 1;
  }
  /// The address, then UCX's key.
  std::vector<std::byte> key(int number) override {
    region const& r = exposed_.at(std::size_t(number));
    void* packed = nullptr;
    std::size_t bytes = 0;
    check_ucx(ucp_rkey_pack(context_, r.handle, &packed, &bytes), "ucp_rkey_pack");
    std::vector<std::byte> all(sizeof r.at + bytes);
    std::memcpy(all.data(), &r.at, sizeof r.at);
    std::memcpy(all.data() + sizeof r.at, packed, bytes);
    ucp_rkey_buffer_release(packed);
    return all;
  }
  void accept_key(int rank, int number, std::span<std::byte const> key) override {
    peer& p = peers_.at(rank);
    p.bases.resize(std::max(p.bases.size(), std::size_t(number) + 1)), p.keys.resize(p.bases.size());
    std::memcpy(&p.bases[std::size_t(number)], key.data(), sizeof(std::uint64_t));
    check_ucx(ucp_ep_rkey_unpack(p.endpoint, key.data() + sizeof(std::uint64_t), &p.keys[std::size_t(number)]),
              "ucp_ep_rkey_unpack");
  }

  bool put(engine_put const& what) override {
    peer& p = peers_.at(what.peer);
    auto& o = under_way_[++operations_];
    o = {this, operations_, what.ticket, what.value, 1};
    finish(std::exchange(flush_, nullptr));  // it did not cover this put
    if (p.failed) return settle_part(o), true;
    check_ucx(ucp_worker_fence(worker_), "ucp_worker_fence");
    if (what.bytes) {
      start(p, o, what.region, what.from, what.bytes, what.to);
      check_ucx(ucp_worker_fence(worker_), "ucp_worker_fence");
    }
    start(p, o, what.flag_region, &o.value, sizeof o.value, what.flag);
    settle_part(o);
    return true;
  }
  void progress(std::vector<std::uint64_t>& done) override {
    for (int i = 0; i < 16 && ucp_worker_progress(worker_) != 0; ++i) {}
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
  }
  bool settled() override {
    if (!under_way_.empty()) return false;
    if (!flush_) {
      ucp_request_param_t p{};
      flush_ = ucp_worker_flush_nbx(worker_, &p);
    }
    if (flush_ && !UCS_PTR_IS_ERR(flush_) && ucp_request_check_status(flush_) == UCS_INPROGRESS) return false;
    finish(std::exchange(flush_, nullptr));
    return true;
  }
  std::optional<engine_failure> failure() override {
    if (failures_.empty()) return std::nullopt;
    auto f = std::move(failures_.front());
    failures_.pop_front();
    return f;
  }

 private:
  struct region {
    void* at;
    ucp_mem_h handle;
  };
  struct peer {
    ucx_engine* self = nullptr;
    int rank = 0;
    ucp_ep_h endpoint = nullptr;
    std::vector<std::uint64_t> bases = {};
    std::vector<ucp_rkey_h> keys = {};
    bool failed = false;

    void fails(ucs_status_t s) {
      if (!std::exchange(failed, true)) self->failures_.push_back({rank, ucs_status_string(s)});
    }
  };
  struct operation {
    ucx_engine* self;
    std::uint64_t number, ticket, value;
    int left;  // parts that are under way, and one while it is started
  };

  void start(peer& p, operation& o, int region, void const* from, std::size_t bytes, std::uint64_t to) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.send = [](void* request, ucs_status_t, void* user) {  // a failure comes through the endpoint's handler, too
      ucp_request_free(request);
      auto* const part = static_cast<operation*>(user);
      part->self->settle_part(*part);
    };
    how.user_data = &o;
    auto const r = ucp_put_nbx(p.endpoint, from, bytes, p.bases.at(std::size_t(region)) + to,
                               p.keys.at(std::size_t(region)), &how);
    if (UCS_PTR_IS_ERR(r)) p.fails(UCS_PTR_STATUS(r));
    else if (r != nullptr) ++o.left;
  }
  void settle_part(operation& o) {
    if (--o.left > 0) return;
    done_.push_back(o.ticket);
    under_way_.erase(o.number);
  }
  /// Waits for a request, for a short time, and frees it.
  void finish(void* request) const {
    if (request == nullptr || UCS_PTR_IS_ERR(request)) return;
    for (int i = 0; i < 100000 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i)
      ucp_worker_progress(worker_);
    ucp_request_free(request);
  }

  ucx_options options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<region> exposed_;
  std::map<int, peer> peers_;                      // whose addresses UCX has
  std::map<std::uint64_t, operation> under_way_;   // likewise
  std::uint64_t operations_ = 0;
  std::vector<std::uint64_t> done_;
  std::deque<engine_failure> failures_;
  void* flush_ = nullptr;
};

}  // namespace

std::unique_ptr<engine> make_ucx_engine(ucx_options const& o, std::source_location where) {
  return std::make_unique<ucx_engine>(o, where);
}

std::string ucx_version() {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  return in_words(major, minor, release);
}

}  // namespace fusewire
