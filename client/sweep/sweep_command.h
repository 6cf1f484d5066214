/* Command line of a trial. */
#ifndef GP_SWEEP_COMMAND_H
#define GP_SWEEP_COMMAND_H

#include "client/sweep/sweep_folder.h"

typedef struct sweep_command sweep_command;

enum { SWEEP_PLACE_BYTES = 80 }; /* length of the name in a placeholder, with its NUL */

/* Build the command of a trial. Free *out with sweep_command_free().
 *   repeat  0: with the seed of the plan; N: with the N-th seed after it
 *   values  JSON object
 *
 * The words are those of the plan. The placeholder {NAME} is replaced by the value of that
 * parameter, {trial} by the number of the trial, and {seed} by the seed. A value without a
 * placeholder follows as --NAME VALUE. A training gets the options for its folder, checkpoints and
 * workers. A program becomes `spmd ... -- PROGRAM`. GP_EINVAL: values are no JSON object.
 * GP_ELIMIT: the command is too long. */
gp_status sweep_command_new(sweep_command **out, const sweep_folder *folder, const sweep_plan *plan,
                            uint32_t trial, uint32_t repeat, const char *values, uint32_t workers,
                            gp_error *err);
void sweep_command_free(sweep_command *command); /* accepts NULL */

/* Return the words without "gradpool", ended by NULL. */
const char *const *sweep_command_words(const sweep_command *command);

/* Append the command that repeats a trial in a POSIX shell, without the options of the sweep:
 * "gradpool train --lr 0.1" or "./prog --lr 0.1". Errors as for sweep_command_new(). */
gp_status sweep_command_line(gp_buffer *out, const sweep_plan *plan, uint32_t trial, const char *values,
                             gp_error *err);

/* Copy the name of the option in a word, such as "folder" of "--folder" or "--folder=x". False: the
 * word is no option. */
bool sweep_option_name(char name[SWEEP_PLACE_BYTES], const char *word);

/* Return whether a word of the plan has the placeholder {NAME}. */
bool sweep_command_has_place(const sweep_plan *plan, const char *name);

/* Return whether each value of a point has a placeholder. */
bool sweep_command_places_all(const sweep_plan *plan, const char *values);

#endif
