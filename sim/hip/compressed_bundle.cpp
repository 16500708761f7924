#include "hip/compressed_bundle.hpp"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/Compression.h>
#include <llvm/Support/Error.h>

#include <cstring>

namespace fusewire::sim {

// magic, u16 version, u16 method (0 zlib, 1 zstd), [v2: u32, v3: u64 file size], u32 or u64 size of the contents, u64 hash
std::vector<u8> decompress_bundle(u8 const* header, std::string& problem) {
  auto const read = [header](std::size_t at, std::size_t bytes) {
    u64 x = 0;
    std::memcpy(&x, header + at, bytes);
    return x;
  };
  u64 const version = read(4, 2), method = read(6, 2);
  if (version != 2 && version != 3) {
    problem = "its compressed bundle has version " + std::to_string(version) + "; 2 and 3 are known";
    return {};
  }
  std::size_t const word = version == 2 ? 4 : 8, start = 8 + 2 * word + 8;
  u64 const file = read(8, word), size = read(8 + word, word);
  llvm::ArrayRef<u8> const packed(header + start, file - start);
  bool const zstd = method == 1;
  if (zstd ? !llvm::compression::zstd::isAvailable() : !llvm::compression::zlib::isAvailable()) {
    problem = std::string("it is compressed with ") + (zstd ? "zstd" : "zlib") + ", which this build cannot read; compile with --no-offload-compress";
    return {};
  }
  llvm::SmallVector<u8, 0> contents;
  llvm::Error error = zstd ? llvm::compression::zstd::decompress(packed, contents, size) : llvm::compression::zlib::decompress(packed, contents, size);
  if (error) {
    problem = "its compressed bundle is damaged: " + llvm::toString(std::move(error));
    return {};
  }
  return {contents.begin(), contents.end()};
}

}  // namespace fusewire::sim
