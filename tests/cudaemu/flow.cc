/* tests/cudaemu/flow.cc - branches, calls, barriers, fences, printf and assert. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"
#include <cctype>
#include <cstdio>

namespace emu
{
namespace
{
void nothing(Warp &, const Inst &, u32) {}

void fence(Warp &w, const Inst &, u32)
{
  w.fenced = true;
  w.block->acquired = order.time;
}

void proxy_fence(Warp &w, const Inst &, u32)
{
  w.proxy_fences++;
  w.fenced_at_sync = w.warp_syncs;
}

void trap(Warp &w, const Inst &i, u32 mask)
{
  fault(w, i, first_lane(mask), fault_launch, "trap");
}

/* Arguments of calls lie in local memory: list holds their offsets. */
u64 argument(Warp &w, const Inst &i, int lane, size_t n)
{
  u64 v;
  memcpy(&v, w.local.data() + (size_t)lane * w.block->kernel->local_bytes + i.list[n].offset, sizeof v);
  return v;
}

void failed_assert(Warp &w, const Inst &i, u32 mask)
{
  const int l = first_lane(mask);
  auto text = [&](size_t n) { return (const char *)raw_view(argument(w, i, l, n)); };
  fault(w, i, l, fault_assert, "%s: device assertion `%s' failed", text(3), text(0));
}

/* One conversion of a format, with its argument; `at` moves on. */
void print_one(const std::string &conversion, const u8 *args, u32 &at)
{
  const char c = conversion.back();
  const bool is_long = conversion.find('l') != std::string::npos || conversion.find('z') != std::string::npos;
  if (c == '%') {
    putchar('%');
  } else if (strchr("feEgGaAsp", c) != nullptr || is_long) {
    u64 v;
    at = (at + 7) & ~7u;
    memcpy(&v, args + at, 8);
    at += 8;
    if (c == 's') {
      printf(conversion.c_str(), (const char *)raw_view(v));
    } else if (c == 'p' || is_long) {
      printf(conversion.c_str(), v);
    } else {
      printf(conversion.c_str(), bits_as<double>(v));
    }
  } else {
    u32 v;
    at = (at + 3) & ~3u;
    memcpy(&v, args + at, 4);
    at += 4;
    printf(conversion.c_str(), v);
  }
}

void print(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    const char *f = (const char *)raw_view(argument(w, i, l, 0));
    const u64 args = argument(w, i, l, 1) & window_mask;
    const u8 *from = w.local.data() + (size_t)l * w.block->kernel->local_bytes + args;
    for (u32 at = 0; *f;) {
      if (*f != '%') {
        putchar(*f++);
        continue;
      }
      std::string conversion(1, *f++);
      while (*f && !isalpha((unsigned char)*f) && *f != '%') conversion += *f++;
      while (*f == 'l' || *f == 'h' || *f == 'z') conversion += *f++;
      if (*f) conversion += *f++;
      print_one(conversion, from, at);
    }
  }
  fflush(stdout);
}

/* --- decoding --- */

void decode_bra(Decoder &x, Inst &i)
{
  i.flow = Flow::branch;
  x.jump(x.arg(0).name, false);
}

void decode_brx(Decoder &x, Inst &i)
{
  i.flow = Flow::branch_table;
  i.a = x.operand(x.arg(0), 4);
  x.jump(x.arg(1).name, true);
}

void decode_ret(Decoder &x, Inst &i)
{
  const bool inlined = x.frame->caller != nullptr && x.words[0] == "ret";
  i.flow = inlined ? Flow::branch : Flow::exit;
  if (inlined) x.leave();
}

void decode_call(Decoder &x, Inst &i)
{
  size_t n = 0;
  std::vector<Arg> results, args;
  if (x.arg(n).kind == Arg::vector) results = x.arg(n++).parts;
  const Arg &name = x.arg(n++);
  if (x.s->args.size() > n && x.arg(n).kind == Arg::vector) args = x.arg(n).parts;
  if (name.name != "vprintf" && name.name != "__assertfail") return x.call(i, name, args, results);
  for (const Arg &a : args) i.list.push_back({x.local_offset(a), 0, 8});
  i.run = name.name == "vprintf" ? print : failed_assert;
}

/* bar[rier][.cta].sync|arrive|red[.popc|and|or] a[, b]; a cluster has one block, and is a barrier of it. */
void decode_bar(Decoder &x, Inst &i)
{
  if (x.has("warp")) return decode_warp_barrier(x, i);
  i.run = nothing;
  if (x.has("cluster") && !x.has("wait")) return;
  i.flow = Flow::barrier;
  i.sub = x.has("arrive");
  if (x.has("cluster")) {
    i.a = x.constant(15, 4);
    return;
  }
  const bool red = x.has("red");
  size_t n = red ? 1 : 0;
  i.a = x.operand(x.arg(n++), 4);
  const size_t last = x.s->args.size() - (red ? 1 : 0);
  if (n < last) i.b = x.operand(x.arg(n), 4);
  if (!red) return;
  i.aux = x.has("popc") ? 1 : x.has("and") ? 2 : 3;
  i.d = x.operand(x.arg(0), i.aux == 1 ? 4 : 1);
  i.c = x.predicate(x.arg(last));
  if (x.arg(last).negated) i.negated |= negated_c;
}

void decode_fence(Decoder &x, Inst &i)
{
  bool proxy = false;
  for (const std::string &word : x.words) proxy |= word.compare(0, 5, "proxy") == 0;
  i.run = proxy ? proxy_fence : fence;
}

void decode_nothing(Decoder &, Inst &i)
{
  i.run = nothing;
}

void decode_trap(Decoder &, Inst &i)
{
  i.run = trap;
}
} // namespace

const Opcode flow_opcodes[] = {{"bra", decode_bra},
                               {"brx", decode_brx},
                               {"ret", decode_ret},
                               {"exit", decode_ret},
                               {"call", decode_call},
                               {"bar", decode_bar},
                               {"barrier", decode_bar},
                               {"membar", decode_fence},
                               {"fence", decode_fence},
                               {"trap", decode_trap},
                               {"brkpt", decode_trap},
                               {"prefetch", decode_nothing},
                               {"prefetchu", decode_nothing},
                               {"nanosleep", decode_nothing},
                               {"griddepcontrol", decode_nothing},
                               {"pmevent", decode_nothing},
                               {"discard", decode_nothing},
                               {"applypriority", decode_nothing},
                               {"setmaxnreg", decode_nothing},
                               {"createpolicy", decode_nothing},
                               {nullptr, nullptr}};
} // namespace emu
