/* SPDX-License-Identifier: MIT */
#ifndef POL_VERSION_H
#define POL_VERSION_H

#define TXMAP_VERSION "0.1.0"

#endif
