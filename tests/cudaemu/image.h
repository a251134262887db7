/* tests/cudaemu/image.h - fat binaries -> kernels and variables. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_IMAGE_H
#define EMU_IMAGE_H

#include "machine.h"

namespace emu
{
/* A fat binary of the program. Its PTX is parsed when the first of its kernels or variables is asked for. */
class Image
{
public:
  explicit Image(const u8 *fat_binary) : data(fat_binary) {}
  Module *module();                        /* nullptr: no PTX for this device */
  Kernel *kernel(const std::string &name); /* nullptr: not there */
  void check();                            /* compiles all, and says what is unknown */

private:
  const u8 *data;
  bool loaded = false;
  std::unique_ptr<Module> m;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;

  void place_variables();
};
} // namespace emu

#endif
