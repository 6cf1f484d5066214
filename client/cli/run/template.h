/* Command templates with GNU parallel's replacement strings:
 *
 *   {}   the value            {.}  without the extension     {#}  job number, from 1
 *   {/}  base name            {//} directory                 {%}  slot number, from 1
 *   {2} {lr}  one of several inputs, by number or by name
 *
 * If a command does not refer to a value, the values are appended. With several inputs, {} as a
 * separate word becomes one word per input; inside a longer word the values are joined by blanks.
 * Braces around anything else are literal text. */
#ifndef GP_CLI_TEMPLATE_H
#define GP_CLI_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cli/run/inputs.h"
#include "common/base/memory/buffer.h"

enum { TEMPLATE_BYTES_MAX = 4 << 20 }; /* maximum filled command length */

typedef struct cli_template cli_template;

/* Parse a template.
 *   words  the command; borrowed until template_free()
 *   names  input names; "": unnamed
 *   shell  join the words to one line for sh -c and quote the values */
gp_status template_new(cli_template **out, const char *const *words, int count, const char *const *names,
                       int name_count, bool shell, gp_error *err);
void template_free(cli_template *template); /* accepts NULL */

/* Return whether the command refers to an input value. If not, values are appended. */
bool template_has_place(const cli_template *template);

/* Fill in a template for one job.
 *   values     one per input; NULL: a template without inputs
 *   slot       slot number for {%}
 *   arguments  set to a NULL-terminated vector, valid until the next call
 *
 * GP_ELIMIT: the command is longer than TEMPLATE_BYTES_MAX. */
gp_status template_fill(cli_template *template, const char *const *values, uint64_t job, uint32_t slot,
                        const char *const **arguments, gp_error *err);

/* Format the command of the last template_fill() as a line for a shell; valid until the next
 * call. */
gp_status template_line(cli_template *template, const char **line, gp_error *err);

#endif
