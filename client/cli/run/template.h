/* template.h -- a command with places for values, as GNU parallel writes them.
 *
 *   {}   the value            {.}  without its extension     {#}  the job's number, from 1
 *   {/}  its base name        {//} its directory             {%}  the number of its place, from 1
 *   {2} {lr}  one of several inputs, by number or by name
 *
 * Where a command has no place for a value, the values are put behind it.  With several inputs a word that is just {}
 * becomes one word for each; inside a longer word they are joined by blanks.  Braces around anything else stay. */
#ifndef GP_CLI_TEMPLATE_H
#define GP_CLI_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cli/run/inputs.h"
#include "common/base/memory/buffer.h"

enum { TEMPLATE_BYTES_MAX = 4 << 20 };

typedef struct cli_template cli_template;

/* template_new -- words (borrowed until it is freed) and the inputs' names ("" = none).
 * shell: the words are one line for sh -c, and values are quoted in it. */
gp_status template_new(cli_template **out, const char *const *words, int count, const char *const *names,
                       int name_count, bool shell, gp_error *err);
void template_free(cli_template *template); /* accepts NULL */

/* Whether the words say where a value goes: else it is put behind them. */
bool template_has_place(const cli_template *template);

/* template_fill -- the arguments for these values, NULL-terminated, valid until the next call.
 * values NULL: a template without inputs.  GP_ELIMIT: longer than TEMPLATE_BYTES_MAX. */
gp_status template_fill(cli_template *template, const char *const *values, uint64_t job, uint32_t place,
                        const char *const **arguments, gp_error *err);

/* template_line -- what was filled last as a line that a shell would take; valid until the next call. */
gp_status template_line(cli_template *template, const char **line, gp_error *err);

/* A word as a shell takes it: quoted if need be. */
gp_status shell_quote(gp_buffer *out, const char *word, gp_error *err);

#endif
