/* tests/cudaemu/image.cc - fat binaries -> kernels and variables. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "image.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <zstd.h>

namespace emu
{
namespace
{
constexpr u32 magic = 0xBA55ED50;
constexpr u16 kind_ptx = 1;
constexpr u64 flag_lz4 = 0x2000, flag_zstd = 0x8000;

template <class T> T at(const u8 *p, size_t offset)
{
  T v;
  memcpy(&v, p + offset, sizeof v);
  return v;
}

/* The PTX of the highest architecture that the device has. */
const u8 *best_entry(const u8 *image)
{
  const u8 *best = nullptr;
  const u8 *entry = image + at<u16>(image, 6), *const end = entry + at<u64>(image, 8);
  for (u32 arch = 0; entry < end; entry += at<u32>(entry, 4) + at<u64>(entry, 8)) {
    const u32 of = at<u32>(entry, 28);
    if (at<u16>(entry, 0) != kind_ptx || of < arch || of > config.capability) continue;
    best = entry;
    arch = of;
  }
  return best;
}

std::string text_of(const u8 *entry)
{
  const u8 *body = entry + at<u32>(entry, 4);
  const u64 flags = at<u64>(entry, 40);
  if (flags & flag_lz4) throw std::runtime_error("LZ4-compressed PTX: build with nvcc --compress-mode=none");
  if (!(flags & flag_zstd)) return std::string((const char *)body, strnlen((const char *)body, at<u64>(entry, 8)));
  std::string text(at<u64>(entry, 56), '\0');
  const size_t n = ZSTD_decompress(&text[0], text.size(), body, at<u32>(entry, 16));
  if (ZSTD_isError(n)) throw std::runtime_error(std::string("the PTX of the fat binary: ") + ZSTD_getErrorName(n));
  return text.substr(0, text.find('\0'));
}
} // namespace

void Image::place_variables()
{
  for (const Variable &v : m->variables) {
    if (v.space == ".shared" || v.external) continue;
    const u64 bytes = std::max<u64>(v.size, 1), address = device_alloc(bytes);
    memset(raw_view(address), 0, bytes);
    if (!v.init.empty()) memcpy(raw_view(address), v.init.data(), std::min<u64>(v.init.size(), bytes));
    mark_initialised(address, bytes);
    m->address[v.name] = address;
  }
  for (const Variable &v : m->variables)
    for (const auto &pointer : v.addresses)
      memcpy(raw_view(m->address[v.name]) + pointer.first, &m->address[pointer.second], 8);
}

Module *Image::module()
{
  if (loaded) return m.get();
  loaded = true;
  if (at<u32>(data, 0) != magic) throw std::runtime_error("not a fat binary");
  const u8 *entry = best_entry(data);
  if (entry == nullptr) {
    fprintf(
        stderr,
        "cudaemu: the program holds no PTX for compute capability %u: nvcc -gencode arch=compute_NN,code=compute_NN\n",
        config.capability);
    return nullptr;
  }
  m = parse_ptx(text_of(entry));
  place_variables();
  return m.get();
}

Kernel *Image::kernel(const std::string &name)
{
  const auto known = kernels.find(name);
  if (known != kernels.end()) return known->second.get();
  if (module() == nullptr) return nullptr;
  const auto f = m->functions.find(name);
  if (f == m->functions.end()) return nullptr;
  return (kernels[name] = compile(*m, *f->second)).get();
}

void Image::check()
{
  int n = 0, unknown = 0;
  if (module() == nullptr) return;
  for (const auto &f : m->functions) {
    if (!f.second->entry) continue;
    unknown += kernel(f.first)->unsupported;
    n++;
  }
  fprintf(stderr, "cudaemu: %d kernels for %s, %d instructions unknown\n", n, m->target.c_str(), unknown);
}
} // namespace emu
