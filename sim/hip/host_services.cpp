#include "hip/host_services.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "machine/report.hpp"
#include "machine/residency.hpp"

namespace fusewire::sim {
namespace {

constexpr u64 printf_bytes = u64{4} << 20;  // of a launch

struct packet_header {
  u64 next, lanes;
  u32 service, waits;
};
using packet_payload = u64[lanes][8];

struct signal {  // amd_signal_t: no mailbox, so a wave that raises it sends no interrupt
  std::int64_t kind, value;
  u64 mailbox, unused[5];
};

[[noreturn]] void unknown_service(u32 service) {
  std::fprintf(stderr,
               "fusewire-sim: device code asks for service %u of the host, which is not implemented (2, printf, is)\n",
               service);
  std::fflush(stdout);
  std::_Exit(exit_code_of_a_report);
}

u64 words(std::size_t bytes) { return (bytes + 7) / 8; }

/// The length of a string that begins at p, without its end.
std::size_t length(u64 const* p, u64 const* end) {
  return p < end ? strnlen(reinterpret_cast<char const*>(p), static_cast<std::size_t>(end - p) * 8) : 0;
}

template <class... T>
void append(std::string& out, std::string const& spec, T... values) {
  int const n = std::snprintf(nullptr, 0, spec.c_str(), values...);
  if (n <= 0) return;
  auto const before = out.size();
  out.resize(before + static_cast<std::size_t>(n) + 1);
  std::snprintf(&out[before], static_cast<std::size_t>(n) + 1, spec.c_str(), values...);
  out.pop_back();
}

std::int64_t sign_extended(u64 x, std::string const& size) {
  if (size == "hh") return static_cast<signed char>(x);
  if (size == "h") return static_cast<short>(x);
  return size.empty() ? static_cast<int>(x) : static_cast<std::int64_t>(x);
}
u64 zero_extended(u64 x, std::string const& size) {
  if (size == "hh") return static_cast<u8>(x);
  if (size == "h") return static_cast<u16>(x);
  return size.empty() ? static_cast<u32>(x) : x;
}

}  // namespace

std::string formatted(std::string const& format, u64 const* argument, u64 const* end) {
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    std::size_t const percent = std::min(format.find('%', at), format.size());
    out.append(format, at, percent - at);
    if (percent == format.size()) break;
    if (percent + 1 < format.size() && format[percent + 1] == '%') {
      out += '%';
      at = percent + 2;
      continue;
    }
    std::size_t const conversion = format.find_first_of("diouxXcfFeEgGaAspn", percent);
    if (conversion == format.npos) break;
    at = conversion + 1;
    std::string spec, size;
    for (std::size_t i = percent; i < conversion; ++i) {
      char const c = format[i];
      if (c == '*') spec += std::to_string(argument < end ? static_cast<int>(*argument++) : 0);
      else if (std::strchr("hljztL", c)) size += c;
      else spec += c;
    }
    if (argument >= end) break;
    char const kind = format[conversion];
    switch (kind) {
      case 'd':
      case 'i': append(out, spec + "lld", static_cast<long long>(sign_extended(*argument++, size))); break;
      case 'o':
      case 'u':
      case 'x':
      case 'X':
        append(out, spec + "ll" + kind, static_cast<unsigned long long>(zero_extended(*argument++, size)));
        break;
      case 'c': append(out, spec + "c", static_cast<int>(*argument++)); break;
      case 'p': append(out, spec + "p", reinterpret_cast<void*>(*argument++)); break;
      case 'n': ++argument; break;
      case 's': {
        std::string const text(reinterpret_cast<char const*>(argument), length(argument, end));
        append(out, spec + "s", text.c_str());
        argument += words(text.size() + 1);
        break;
      }
      default: append(out, spec + kind, std::bit_cast<double>(*argument++));
    }
  }
  return out;
}

namespace {

/// Prints a format with its arguments. Returns the number of characters.
u64 print(bool to_error, u64 const* begin, u64 const* end) {
  std::string const format(reinterpret_cast<char const*>(begin), length(begin, end));
  std::string const text =
      formatted(format, begin + std::min<u64>(words(format.size() + 1), static_cast<u64>(end - begin)), end);
  std::fwrite(text.data(), 1, text.size(), to_error ? stderr : stdout);
  return text.size();
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ hostcall

/// Both stacks hold tagged indices of packets. The bits above index_mask change with each push, so a wave whose packet
/// is no longer on top cannot mistake it for being there.
struct host_services::hostcall {
  packet_header* headers;
  packet_payload* payloads;
  signal* doorbell;
  u64 free_stack, ready_stack, index_mask;
  signal bell;

  /// Enough packets for every wave that can be resident: the device libraries do not check whether the stack is empty.
  static u64 packets(node const& n) { return std::bit_ceil(u64{waves_per_cu} * static_cast<u64>(n.settings.cus) + 1); }
  static u64 bytes(node const& n) {
    return sizeof(hostcall) + packets(n) * (sizeof(packet_header) + sizeof(packet_payload));
  }
};

u64 host_services::hostcall_buffer(int gpu) {
  allocation*& a = hostcalls_[static_cast<std::size_t>(gpu)];
  if (a) return a->base;
  a = node_.memory.allocate(-1, hostcall::bytes(node_), memory_kind::host);
  if (!a) return 0;
  auto* const h = reinterpret_cast<hostcall*>(a->base);
  u64 const n = hostcall::packets(node_);
  h->payloads = reinterpret_cast<packet_payload*>(h + 1);
  h->headers = reinterpret_cast<packet_header*>(h->payloads + n);
  h->index_mask = n - 1;
  h->bell = {.kind = 1, .value = 1, .mailbox = 0, .unused = {}};
  h->doorbell = &h->bell;
  h->ready_stack = 0;
  // 0 marks the end of a stack, so packet 0 begins with a tag
  u64 top = 0;
  for (u64 i = 0; i < n; ++i) h->headers[i].next = top, top = i == 0 ? n : i;
  h->free_stack = top;
  return a->base;
}

bool host_services::serve() {
  bool any = false;
  for (allocation* const a : hostcalls_) {
    if (!a) continue;
    auto* const h = reinterpret_cast<hostcall*>(a->base);
    for (u64 ready = std::exchange(h->ready_stack, 0); ready;) {
      packet_header& packet = h->headers[ready & h->index_mask];
      packet_payload& payload = h->payloads[ready & h->index_mask];
      ready = packet.next;
      for (u64 left = packet.lanes; left; left &= left - 1) answer(payload[std::countr_zero(left)], packet.service);
      packet.waits = 0;
      any = true;
    }
  }
  if (any) ++node_.changes;
  return any;
}

/// A message is a stream (0: standard output, 1: error), a format and arguments, in as many packets as that takes. Word
/// 0 of each packet: bit 0, it is the first; bit 1, it is the last; bits 5 to 7, the number of words that follow; from
/// bit 8 on, the message's number, which the host assigns.
void host_services::answer(u64* slot, u32 service) {
  constexpr u32 printf_service = 2;
  if (service != printf_service) unknown_service(service);
  u64& description = slot[0];
  if (description & 1) {
    if (spare_messages_.empty()) spare_messages_.push_back(messages_.size()), messages_.emplace_back();
    description = (description & 0xfe) | spare_messages_.back() << 8;
    spare_messages_.pop_back();
  }
  u64 const number = description >> 8;
  if (number >= messages_.size()) return;
  auto& message = messages_[number];
  message.insert(message.end(), slot + 1, slot + 1 + (description >> 5 & 7));
  if (!(description & 2)) return;
  u64 const* const begin = message.data();
  description = message.empty() ? 0 : print(begin[0] & 1, begin + 1, begin + message.size());
  message.clear();
  spare_messages_.push_back(number);
}

// ------------------------------------------------------------------------------------------------------------ buffered

u64 host_services::printf_buffer(dispatch const& d) {
  if (spare_buffers_.empty())
    if (allocation* const fresh = node_.memory.allocate(-1, printf_bytes, memory_kind::host))
      spare_buffers_.push_back(fresh);
  if (spare_buffers_.empty()) return 0;
  allocation* const a = printing_[&d] = spare_buffers_.back();
  spare_buffers_.pop_back();
  u32 const start[2] = {0, static_cast<u32>(printf_bytes - 8)};  // bytes used, bytes there are
  std::memcpy(reinterpret_cast<void*>(a->base), start, sizeof start);
  return a->base;
}

/// A record is a word of 4 bytes, then the hash or the format, then arguments. The word: bit 0, print to standard
/// error; bit 1, the format is in the module, under a hash; bits above, bytes of the record.
void host_services::ended(dispatch const& d) {
  auto const found = printing_.find(&d);
  if (found == printing_.end()) return;
  allocation* const a = found->second;
  printing_.erase(found);
  spare_buffers_.push_back(a);
  auto const* p = reinterpret_cast<u8 const*>(a->base);
  u32 used, head, bytes;
  std::memcpy(&used, p, 4);
  p += 8;
  for (u8 const* const end = p + used; p < end; p += bytes) {
    std::memcpy(&head, p, 4);
    bytes = head >> 2;
    if (bytes < 4 || bytes > static_cast<u64>(end - p)) break;
    std::vector<u64> message((bytes - 4) / 8);
    std::memcpy(message.data(), p + 4, message.size() * 8);
    if (head & 2) {
      if (message.empty() || !d.kernel->formats) break;
      auto const format = d.kernel->formats->find(message[0]);
      if (format == d.kernel->formats->end()) break;
      std::string const text = formatted(format->second, message.data() + 1, message.data() + message.size());
      std::fwrite(text.data(), 1, text.size(), head & 1 ? stderr : stdout);
    } else {
      print(head & 1, message.data(), message.data() + message.size());
    }
  }
}

}  // namespace fusewire::sim
