/* tests/cudaemu/matrix.cc - ldmatrix, stmatrix, mma.sync. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
void need_whole_warp(Warp &w, const Inst &i, u32 mask)
{
  if (mask != ~0u) fault(w, i, 0, fault_launch, "a matrix instruction wants the whole warp, mask %08x", mask);
}

/* Element (row, column) of an 8x8 matrix of 16 bits lies in this lane's register, in this half of it. */
struct Place {
  int lane, half;
};

Place place_of(int row, int column, bool transposed)
{
  if (transposed) std::swap(row, column);
  return {row * 4 + column / 2, column & 1};
}

/* count: matrices; sub: transposed. Lane 8 k + r has the address of row r of matrix k. */
u64 row_address(Warp &w, const Inst &i, int lane)
{
  const u64 a = get(w, i.a, lane) + (u64)i.offset;
  return i.a.size == 4 ? (u32)a : a & window_mask;
}

void load_matrices(Warp &w, const Inst &i, u32 mask)
{
  u32 out[4][32] = {{0}};
  need_whole_warp(w, i, mask);
  for (int row = 0; row < 8 * i.count; row++) {
    u16 values[8];
    memcpy(values, access<Space::shared>(w, i, row, row_address(w, i, row), 16, reads), 16);
    for (int c = 0; c < 8; c++) {
      const Place p = place_of(row % 8, c, i.sub);
      out[row / 8][p.lane] |= (u32)values[c] << 16 * p.half;
    }
  }
  for (int k = 0; k < i.count; k++) memcpy(lanes<u32>(w, i.list[(size_t)k]), out[k], sizeof out[k]);
}

void store_matrices(Warp &w, const Inst &i, u32 mask)
{
  need_whole_warp(w, i, mask);
  for (int row = 0; row < 8 * i.count; row++) {
    u16 values[8];
    for (int c = 0; c < 8; c++) {
      const Place p = place_of(row % 8, c, i.sub);
      values[c] = (u16)(lanes<u32>(w, i.list[(size_t)(row / 8)])[p.lane] >> 16 * p.half);
    }
    memcpy(access<Space::shared>(w, i, row, row_address(w, i, row), 16, writes, values), values, 16);
  }
}

/* --- mma.sync m16n8kK: d = a b + c --- */

struct Tile {
  float a[16][16], b[16][8], c[16][8];
};

constexpr u32 mma_bf16 = 1, mma_half_accumulator = 2, mma_tf32 = 4;

/* PTX manual, "Matrix Fragments for mma.m16n8k16": g = lane / 4, t = lane % 4. aux: K. */
void read_pairs(Warp &w, const Inst &i, const Operand *a, const Operand *b, Tile &x)
{
  const bool bf = i.sub & mma_bf16;
  const int K = (int)i.aux;
  for (int l = 0; l < 32; l++)
    for (int half = 0; half < 2; half++) {
      const int g = l / 4, k0 = l % 4 * 2 + half;
      for (int r = 0; r < K / 4; r++)
        x.a[g + 8 * (r & 1)][k0 + 8 * (r >> 1)] = half_of(lanes<u32>(w, a[r])[l], half, bf);
      for (int r = 0; r < K / 8; r++) x.b[k0 + 8 * r][g] = half_of(lanes<u32>(w, b[r])[l], half, bf);
    }
}

/* The same for tf32, of which a register holds one. */
void read_tf32(Warp &w, const Inst &i, const Operand *a, const Operand *b, Tile &x)
{
  auto tf32 = [](u32 v) { return as_float(v & 0xffffe000); };
  for (int l = 0; l < 32; l++) {
    const int g = l / 4, t = l % 4;
    for (u32 r = 0; r < i.aux / 2; r++) x.a[g + 8 * (r & 1)][t + 4 * (r >> 1)] = tf32(lanes<u32>(w, a[r])[l]);
    for (u32 r = 0; r < i.aux / 4; r++) x.b[t + 4 * r][g] = tf32(lanes<u32>(w, b[r])[l]);
  }
}

void read_accumulator(Warp &w, const Inst &i, const Operand *c, Tile &x)
{
  for (int l = 0; l < 32; l++)
    for (int r = 0; r < 4; r++)
      x.c[l / 4 + 8 * (r >> 1)][l % 4 * 2 + (r & 1)] = i.sub & mma_half_accumulator
                                                           ? half_of(lanes<u32>(w, c[r / 2])[l], r & 1, false)
                                                           : as_float(lanes<u32>(w, c[r])[l]);
}

void write_accumulator(Warp &w, const Inst &i, const Operand *d, const Tile &x)
{
  for (int l = 0; l < 32; l++)
    for (int r = 0; r < 4; r++) {
      const float v = x.c[l / 4 + 8 * (r >> 1)][l % 4 * 2 + (r & 1)];
      if (!(i.sub & mma_half_accumulator)) {
        lanes<u32>(w, d[r])[l] = as_bits(v);
      } else if (r & 1) {
        lanes<u32>(w, d[r / 2])[l] |= (u32)f32_to_f16(v) << 16;
      } else {
        lanes<u32>(w, d[r / 2])[l] = f32_to_f16(v);
      }
    }
}

void multiply(Tile &x, int K)
{
  for (int r = 0; r < 16; r++) {
    float sum[8] = {0};
    for (int k = 0; k < K; k++)
      for (int n = 0; n < 8; n++) sum[n] += x.a[r][k] * x.b[k][n];
    for (int n = 0; n < 8; n++) x.c[r][n] += sum[n];
  }
}

void mma(Warp &w, const Inst &i, u32 mask)
{
  static thread_local Tile x;
  need_whole_warp(w, i, mask);
  const int per_a = (int)i.aux / (i.sub & mma_tf32 ? 2 : 4), per_d = i.sub & mma_half_accumulator ? 2 : 4;
  const Operand *d = i.list.data(), *a = d + per_d, *b = a + per_a, *c = b + per_a / 2;
  if (i.sub & mma_tf32) {
    read_tf32(w, i, a, b, x);
  } else {
    read_pairs(w, i, a, b, x);
  }
  read_accumulator(w, i, c, x);
  multiply(x, (int)i.aux);
  write_accumulator(w, i, d, x);
}

/* --- decoding --- */

void decode_matrices(Decoder &x, Inst &i)
{
  const bool stores = x.words[0] == "stmatrix";
  Space space = Space::shared;
  if (!x.has("m8n8") || !x.has("b16")) throw Unsupported{"the shape"};
  i.flow = Flow::warp_wide;
  i.a = x.address(x.arg(stores ? 0 : 1), i.offset, space);
  x.operands(i.list, x.arg(stores ? 1 : 0), 4);
  i.count = (u8)i.list.size();
  i.sub = x.has("trans");
  i.run = stores ? store_matrices : load_matrices;
}

void decode_mma(Decoder &x, Inst &i)
{
  const std::vector<Type> t = x.types(); /* of d, a, b, c; tf32 is no type of registers */
  const bool tf32 = x.has("tf32");
  i.aux = x.has("m16n8k16") ? 16 : x.has("m16n8k8") ? 8 : x.has("m16n8k4") ? 4 : 0;
  const bool known = tf32 ? i.aux == 4 || i.aux == 8 : i.aux >= 8 && t.size() == 4 && is_half(t[1]) && t[1] == t[2];
  if (!known || !x.has("row") || !x.has("col") || (t[0] != Type::f32 && t[0] != Type::f16) || t[0] != t.back())
    throw Unsupported{"the shape or type"};
  i.flow = Flow::warp_wide;
  i.sub = tf32 ? mma_tf32 : (is_bf16(t[1]) ? mma_bf16 : 0) | (t[0] == Type::f16 ? mma_half_accumulator : 0);
  for (const Arg &fragment : x.s->args) x.operands(i.list, fragment, 4);
  i.run = mma;
}
} // namespace

const Opcode matrix_opcodes[] = {
    {"ldmatrix", decode_matrices}, {"stmatrix", decode_matrices}, {"mma", decode_mma}, {nullptr, nullptr}};
} // namespace emu
