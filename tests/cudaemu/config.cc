/* tests/cudaemu/config.cc - the knobs, from the environment. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"
#include <cstdlib>

namespace emu
{
namespace
{
u64 knob(const char *name, u64 otherwise)
{
  const char *text = getenv((std::string("CUDAEMU_") + name).c_str());
  return text != nullptr && *text ? strtoull(text, nullptr, 0) : otherwise;
}

Config from_environment()
{
  Config c;
  c.race = knob("RACE", 0) != 0;
  c.init = knob("INIT", 0) != 0;
  c.lazy = knob("LAZY", 0) != 0;
  c.abort = knob("ABORT", 1) != 0;
  c.trace = knob("TRACE", 0) != 0;
  c.check = knob("CHECK", 0) != 0;
  c.driver = knob("DRIVER", 1) != 0;
  c.seed = (u32)knob("SEED", 1);
  c.capability = (u32)knob("CC", 90);
  c.devices = (u32)knob("DEVICES", 8);
  c.slice = knob("SLICE", 0);
  c.limit = knob("LIMIT", 20000000);
  c.memory = knob("MEMORY", 8192) << 20;
  return c;
}
} // namespace

const Config config = from_environment();
} // namespace emu
