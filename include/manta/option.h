/* manta/option.h - how options are given: one rule for every options struct.
 *
 * Zeroed memory is the default, of a whole struct and of each field. What 0
 * cannot say then, two constants say, in fields of whole and of real numbers
 * alike, where the field's comment names them:
 *
 *     MANTA_NONE   none of it: no limit, no timeout, no threads, no processors
 *     MANTA_ZERO   the number 0, where 0 already stands for a default
 *
 * So a batch norm with {0} has Keras's momentum and one with {.momentum =
 * MANTA_ZERO} has none; a cluster with {0} waits ten minutes and one with
 * {.timeout_ms = MANTA_NONE} for ever. A third, MANTA_UNLIMITED, is for counts of
 * which MANTA_NONE means not one: how often something is tried again. Other
 * negative numbers are refused with a sentence that names the field.
 *
 * A bool is false by default, and its name says what true does; what is done
 * unless told otherwise has a bool that begins with no_ (no_bias). */
#ifndef MANTA_OPTION_H
#define MANTA_OPTION_H

#define MANTA_NONE      (-1)
#define MANTA_UNLIMITED (-2)
#define MANTA_ZERO      (-2147483647 - 1) /* a value of int, int64_t, float and double alike */

#endif
