/* Command line of a trial; sweep_command.h describes the interface. */
#include "client/sweep/sweep_command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/train_options.h"

enum { PATH = SWEEP_PATH_MAX + 100, TEXT_BYTES_MAX = 1 << 20, ADDED_WORDS = 12 };

struct sweep_command {
    const char *words[SWEEP_WORDS_MAX + 2 * GP_SEARCH_PARAMETERS_MAX + ADDED_WORDS];
    uint32_t count;
    gp_buffer text; /* words of the plan and options, each with a NUL */
    char folder[PATH], checkpoints[PATH], size[32];
};

/* State while a command is built. */
typedef struct builder {
    sweep_command *command;
    const sweep_plan *plan;
    const gp_json *values; /* of the trial */
    uint32_t trial, repeat;
} builder;

/* Return the value of the option --seed: from "--seed=5", or from "--seed" with the word after it.
 * NULL: `word` is another word. */
static const char *seed_value(const char *word, const char *next)
{
    if (strncmp(word, "--seed=", 7) == 0)
        return word + 7;
    return strcmp(word, "--seed") == 0 && next != NULL ? next : NULL;
}

/* Return the seed of a trial: the option --seed of a training, or 0 for a program, plus the number
 * of the repeat. */
static uint64_t seed_of(const builder *b)
{
    const gp_param *param = gp_params_find(gp_train_options_table, "seed");
    uint64_t seed = sweep_plan_trains(b->plan) && param != NULL ? (uint64_t)param->fallback : 0;
    const char *value;

    for (const char *word = NULL;
         sweep_plan_trains(b->plan) && (word = sweep_plan_next(b->plan, word)) != NULL;)
        if ((value = seed_value(word, sweep_plan_next(b->plan, word))) != NULL)
            seed = strtoull(value, NULL, 10);
    return seed + b->repeat;
}

static void add_word(sweep_command *command, const char *word)
{
    command->words[command->count++] = word;
}

/* Append a value as text. */
static gp_status put_value(gp_buffer *out, const gp_json *value, gp_error *err)
{
    const char *text = gp_json_text(value, NULL);
    gp_json_writer writer;

    if (text != NULL)
        return gp_buffer_append(out, text, strlen(text), err);
    gp_json_writer_init(&writer, out, false);
    gp_json_put_value(&writer, NULL, value);
    return gp_json_writer_finish(&writer, err);
}

/* ---- placeholders ---- */

/* Find the next placeholder {NAME} in a word.
 *   name  set to the name
 * Returns the opening brace; NULL: there is none. */
static const char *place_find(const char *word, char name[SWEEP_PLACE_BYTES])
{
    static const char bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

    while ((word = strchr(word, '{')) != NULL) {
        size_t length = strspn(word + 1, bytes);

        if (length > 0 && length < SWEEP_PLACE_BYTES && word[1 + length] == '}') {
            snprintf(name, SWEEP_PLACE_BYTES, "%.*s", (int)length, word + 1);
            return word;
        }
        word++;
    }
    return NULL;
}

bool sweep_option_name(char name[SWEEP_PLACE_BYTES], const char *word)
{
    if (strncmp(word, "--", 2) != 0)
        return false;
    snprintf(name, SWEEP_PLACE_BYTES, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    return true;
}

bool sweep_command_has_place(const sweep_plan *plan, const char *name)
{
    char found[SWEEP_PLACE_BYTES];

    for (const char *word = NULL; (word = sweep_plan_next(plan, word)) != NULL;)
        for (const char *at = word; (at = place_find(at, found)) != NULL; at++)
            if (strcmp(found, name) == 0)
                return true;
    return false;
}

static gp_status check_place(void *context, const char *name, const gp_json *value, gp_error *err)
{
    (void)value;
    return sweep_command_has_place(context, name) ? GP_OK
                                                  : gp_fail(err, GP_ENOENT, "no placeholder {%s}", name);
}

bool sweep_command_places_all(const sweep_plan *plan, const char *values)
{
    gp_json *json = NULL;
    bool all = gp_json_parse(&json, values, strlen(values), NULL) == GP_OK &&
               gp_json_each(json, check_place, (void *)(uintptr_t)plan, NULL) == GP_OK;

    gp_json_free(json);
    return all;
}

/* Append a word, with its placeholders replaced by the values of the trial. Braces around other
 * names are literal text. */
static gp_status put_word(const builder *b, const char *word, gp_error *err)
{
    gp_buffer *out = &b->command->text;
    char name[SWEEP_PLACE_BYTES], number[24];
    gp_status status = GP_OK;
    const char *from = word;

    for (const char *at = word; status == GP_OK && (at = place_find(at, name)) != NULL;) {
        const gp_json *value = gp_json_member(b->values, name);
        const bool trial = strcmp(name, "trial") == 0, seed = strcmp(name, "seed") == 0;

        if (value == NULL && !trial && !seed) {
            at++;
            continue;
        }
        snprintf(number, sizeof(number), "%" PRIu64, trial ? b->trial : seed_of(b));
        status = gp_buffer_append(out, from, (size_t)(at - from), err);
        if (status == GP_OK)
            status = value != NULL ? put_value(out, value, err)
                                   : gp_buffer_append(out, number, strlen(number), err);
        at = from = at + strlen(name) + 2;
    }
    return status == GP_OK ? gp_buffer_append(out, from, strlen(from) + 1, err) : status;
}

/* Append a parameter without a placeholder as an option. */
static gp_status put_option(void *context, const char *name, const gp_json *value, gp_error *err)
{
    const builder *b = context;
    gp_buffer *out = &b->command->text;
    gp_status status;

    if (sweep_command_has_place(b->plan, name))
        return GP_OK;
    status = gp_buffer_append(out, "--", 2, err);
    if (status == GP_OK)
        status = gp_buffer_append(out, name, strlen(name) + 1, err);
    if (status == GP_OK)
        status = put_value(out, value, err);
    return status == GP_OK ? gp_buffer_append(out, "", 1, err) : status;
}

/* Append the seed of a repeat. */
static gp_status put_seed(const builder *b, gp_error *err)
{
    char text[40];
    int bytes = snprintf(text, sizeof(text), "--seed=%" PRIu64, seed_of(b));

    return gp_buffer_append(&b->command->text, text, (size_t)bytes + 1, err);
}

/* Fill in the text of the command: the words of the plan, then the values without a placeholder as
 * options. */
static gp_status put_text(const builder *b, gp_error *err)
{
    const bool reseeded = b->repeat > 0 && sweep_plan_trains(b->plan);
    gp_status status = GP_OK;
    uint32_t count = 0;

    if (!gp_json_is_object(b->values) || gp_json_count(b->values) > GP_SEARCH_PARAMETERS_MAX)
        return gp_fail(err, GP_EINVAL, "malformed values of a trial");
    for (const char *word = NULL; status == GP_OK && (word = sweep_plan_next(b->plan, word)) != NULL;) {
        const char *next = sweep_plan_next(b->plan, word), *seed = seed_value(word, next);

        if (reseeded && seed != NULL) { /* put_seed() replaces the option */
            word = seed == next ? next : word;
            continue;
        }
        status = ++count <= SWEEP_WORDS_MAX
                     ? put_word(b, word, err)
                     : gp_fail(err, GP_ELIMIT, "the command has more than %d words", SWEEP_WORDS_MAX);
    }
    if (status == GP_OK && reseeded)
        status = put_seed(b, err);
    return status == GP_OK ? gp_json_each(b->values, put_option, (void *)(uintptr_t)b, err) : status;
}

/* ---- commands ---- */

/* Add the words of a training: folder, checkpoints and workers. */
static void add_training(sweep_command *command)
{
    const char *const added[] = { "--folder", command->folder, "--checkpoint-path", command->checkpoints,
                                  "--resume", "auto",          "--workers",         command->size };

    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++)
        add_word(command, added[i]);
}

/* Add the words before a program, which runs on each worker of the trial. */
static void add_launch(sweep_command *command)
{
    const char *const added[] = {
        "spmd", "-n", command->size, "--tag=no", "--folder", command->folder, "--"
    };

    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++)
        add_word(command, added[i]);
}

/* Build the words from the text and the words that gradpool adds. */
static void build(sweep_command *command, const sweep_folder *folder, const sweep_plan *plan, uint32_t trial,
                  uint32_t workers)
{
    sweep_folder_trial(folder, trial, NULL, command->folder);
    sweep_folder_checkpoints(folder, trial, command->checkpoints);
    if (plan->workers_min < plan->workers_max)
        snprintf(command->size, sizeof(command->size), "%" PRIu32 ":%" PRIu32, plan->workers_min, workers);
    else
        snprintf(command->size, sizeof(command->size), "%" PRIu32, workers);
    if (!sweep_plan_trains(plan))
        add_launch(command);
    for (size_t at = 0; at < command->text.bytes;) {
        const char *word = (const char *)command->text.data + at;

        add_word(command, word);
        at += strlen(word) + 1;
    }
    if (sweep_plan_trains(plan))
        add_training(command);
    add_word(command, NULL);
}

gp_status sweep_command_new(sweep_command **out, const sweep_folder *folder, const sweep_plan *plan,
                            uint32_t trial, uint32_t repeat, const char *values, uint32_t workers,
                            gp_error *err)
{
    sweep_command *command = gp_calloc(1, sizeof(*command));
    gp_json *json = NULL;
    gp_status status;

    if (command == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    gp_buffer_init(&command->text, TEXT_BYTES_MAX);
    status = gp_json_parse(&json, values, strlen(values), err);
    if (status == GP_OK)
        status = put_text(&(builder){ command, plan, json, trial, repeat }, err);
    gp_json_free(json);
    if (status != GP_OK) {
        sweep_command_free(command);
        return status;
    }
    build(command, folder, plan, trial, workers);
    *out = command;
    return GP_OK;
}

gp_status sweep_command_line(gp_buffer *out, const sweep_plan *plan, uint32_t trial, const char *values,
                             gp_error *err)
{
    gp_json *json = NULL;
    sweep_command *command = gp_calloc(1, sizeof(*command));
    gp_status status = command == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a command") : GP_OK;
    const char *before = sweep_plan_trains(plan) ? "gradpool" : "";

    if (status != GP_OK)
        return status;
    gp_buffer_init(&command->text, TEXT_BYTES_MAX);
    status = gp_json_parse(&json, values, strlen(values), err);
    if (status == GP_OK)
        status = put_text(&(builder){ command, plan, json, trial, 0 }, err);
    if (status == GP_OK)
        status = gp_buffer_append(out, before, strlen(before), err);
    for (size_t at = 0; status == GP_OK && at < command->text.bytes;) {
        const char *word = (const char *)command->text.data + at;

        if (at > 0 || before[0] != '\0')
            status = gp_buffer_append(out, " ", 1, err);
        if (status == GP_OK)
            status = gp_buffer_shell_word(out, word, err);
        at += strlen(word) + 1;
    }
    gp_json_free(json);
    sweep_command_free(command);
    return status;
}

void sweep_command_free(sweep_command *command)
{
    if (command == NULL)
        return;
    gp_buffer_deinit(&command->text);
    gp_free(command);
}

const char *const *sweep_command_words(const sweep_command *command)
{
    return command->words;
}
