/* test_view.c: the table and the picture for a training, drawn into a file and read back. */
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/cli/train/train_text.h"
#include "client/cli/view.h"
#include "common/base/clock.h"
#include "tests/gp_test.h"

/* a file has no terminal size: 80 columns and 24 rows are assumed */
enum { TEXT_BYTES = 1 << 20, WIDTH = 80 };

static char text[TEXT_BYTES];

/* Draw 2 epochs with 20 steps, each followed by a validation unless validation_samples is 0. */
static void draw_run(bool live, uint32_t frequency, uint32_t workers, uint64_t validation_samples)
{
    FILE *file = tmpfile();
    gp_view *view =
        view_new(&(view_options){ .out = file, .log = NULL, .live = live, .frequency = frequency });
    gp_train_info facts = {
        .workers = workers, .steps_per_epoch = 20, .epochs = 2, .validation_samples = validation_samples
    };

    for (uint32_t i = 0; i < workers; i++)
        facts.worker_index[i] = i + 1;
    view_begin(view, &facts);
    for (uint32_t step = 1; step <= 40; step++) {
        for (uint32_t rank = workers; rank-- > 0;)
            view_step(view, &(gp_train_step){ .worker = rank + 1,
                                              .rank = rank,
                                              .step = step,
                                              .epoch = 1 + step / 21,
                                              .samples = 100,
                                              .loss = 2.0 / step,
                                              .accuracy = 1 - 0.9 / step,
                                              .learn_rate = 0.1,
                                              .seconds = 0.1 * step,
                                              .forward_ms = 60,
                                              .backward_ms = 40 });
        if (step % 20 == 0 && validation_samples > 0)
            view_check(view, &(gp_train_validation_result){ .step = step,
                                                            .epoch = step / 20,
                                                            .seconds = 0.1 * step,
                                                            .loss = 0.5,
                                                            .accuracy = 0.875 });
    }
    view_free(view);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
}

static uint32_t count(const char *part)
{
    uint32_t found = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        found++;
    return found;
}

/* Count the visible characters in a line, without terminal escapes; store the line end in *end. */
static uint32_t columns(const char *line, const char **end)
{
    uint32_t width = 0;

    for (; *line != '\n' && *line != '\0'; line++) {
        if (*line == '\033') {
            while (*line != 'A' && *line != 'K' && *line != 'J' && *line != 'H')
                line++;
        } else if (*line != '\r' && ((unsigned char)*line & 0xc0) != 0x80) {
            width++;
        }
    }
    *end = line;
    return width;
}

TEST(a_step_and_its_validation_are_one_line_of_the_table)
{
    draw_run(false, 20, 2, 100);
    CHECK_INT(4 + 3, count("\n")); /* the heading, steps 1, 20 and 40 */
    CHECK_INT(1, count("|       1 |     20 |"));
    CHECK_CONTAINS(text, "|       2 |     40 | 00:00:04.00 |  97.75 % |    87.50 % |  0.0500 |     0.5000 |");
    draw_run(false, 7, 2, 100);
    CHECK_INT(4 + 1 + 5 + 2, count("\n")); /* 7, 14, ..., 35 and the two validations */
    draw_run(false, 20, 2, 0);
    CHECK_INT(4 + 3, count("\n"));
}

TEST(every_row_of_the_table_is_as_wide_as_the_heading)
{
    const char *end = text - 1;

    draw_run(false, 3, 1, 100);
    for (const char *line = text; *line != '\0'; line = end + 1)
        CHECK_INT(92, columns(line, &end));
}

TEST(picture_fits_the_terminal_and_overwrites_the_previous_one)
{
    draw_run(true, 50, 20, 100);
    for (const char *line = text, *end; *line != '\0'; line = *end == '\0' ? end : end + 1)
        CHECK(columns(line, &end) <= WIDTH);
    CHECK_CONTAINS(text, "┤");
    CHECK_CONTAINS(text, "100 %  epoch 2/2  done");
    CHECK_CONTAINS(text, "(20 workers, 8 shown)");

    /* Each picture moves the cursor up by the previous picture height, which is less than the
     * terminal height. */
    uint32_t lines = 0, pictures = 0;

    for (const char *at = text; *at != '\0'; at++) {
        int up = 0;

        if (*at == '\n')
            lines++;
        if (sscanf(at, "\033[%dA", &up) == 1 && strchr(at, 'A') - at < 6) {
            CHECK_INT(lines, up);
            CHECK(lines < 24);
            lines = 0;
            pictures++;
        }
    }
    CHECK(pictures >= 2); /* pictures for each validation and at the end */
}

TEST(without_validation_data_the_picture_names_the_training_batches)
{
    draw_run(true, 50, 2, 0);
    CHECK_CONTAINS(text, "no validation data: accuracy is measured on the training batches");
}

/* A spike after the first steps neither rescales the axis nor hides the rest. The axis ends at the
 * last planned step. */
TEST(axes_cover_the_whole_training)
{
    FILE *file = tmpfile();
    gp_view *view;

    view = view_new(&(view_options){ .out = file, .live = true, .frequency = 1 });
    view_begin(view, &(gp_train_info){
                         .workers = 1, .steps_per_epoch = 20, .epochs = 4, .validation_samples = 100 });
    for (uint32_t step = 1; step <= 40; step++)
        view_step(view, &(gp_train_step){ .step = step,
                                          .epoch = 1 + (step - 1) / 20,
                                          .loss = step == 30 ? 70 : 2.3 - step * 0.02,
                                          .accuracy = step / 80.0 });
    view_check(view, &(gp_train_validation_result){ .step = 40, .loss = 1.5, .accuracy = 0.5 });
    view_free(view);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    CHECK(count("   epoch  0 ") >= 2); /* pictures before and after the spike */
    CHECK_INT(count("   epoch  0 "), count("     2.5 ┤"));
    CHECK_CONTAINS(text, "       0 ┤");
    CHECK_CONTAINS(text, "   100 % ┤");
    CHECK_CONTAINS(text, "   epoch  0 ");
    CHECK_CONTAINS(text, " 4\033[K"); /* axis end: two more epochs are planned */
    CHECK_CONTAINS(text, "◆");        /* the validation */
    CHECK_CONTAINS(text, "◆                                   \033[K"); /* nothing follows it */
}

/* ---- progress ---- */

TEST(a_long_validation_shows_its_progress_until_it_ends)
{
    for (int live = 0; live < 2; live++) {
        FILE *file = tmpfile();
        gp_view *view =
            view_new(&(view_options){ .out = file, .live = live, .terminal = true, .frequency = 10 });
        gp_train_info facts = { .workers = 1,
                                .worker_index = { 1 },
                                .steps_per_epoch = 10,
                                .epochs = 2,
                                .validation_samples = 4000 };
        gp_train_step step = { .worker = 1, .step = 10, .epoch = 1, .samples = 100, .loss = 1, .seconds = 1 };

        view_begin(view, &facts);
        view_step(view, &step);
        view_check_progress(
            view, &(gp_train_validation_progress){ .step = 10, .done = 1000, .count = 4000, .seconds = 2.5 });
        view_check(view,
                   &(gp_train_validation_result){ .step = 10, .epoch = 1, .loss = 0.5, .accuracy = 0.875 });
        view_free(view);
        rewind(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
        CHECK_INT(1, count("validating: 1000 of 4000 samples, 25 %, 400 samples/s, 7.5 s left\033[K"));
        const char *rest = strstr(text, "left\033[K");

        REQUIRE(rest != NULL);

        /* The next picture shows the result on that line; the table replaces the progress line. */
        CHECK_CONTAINS(rest, live ? "validation after step 10: loss 0.5000" : "left\033[K\r\033[K|===");
    }
}

TEST(progress_has_percent_rate_and_time_left)
{
    char words[200];

    CHECK_TEXT("227328 of 3000000 samples, 7 %, 15000 samples/s, 3 m 04 s left",
               cli_progress_words(words, sizeof(words), "samples", 227328, 3000000, 15000));
    CHECK_TEXT("0 of 40 jobs, 0 %", cli_progress_words(words, sizeof(words), "jobs", 0, 40, 0));
    CHECK_TEXT("40 of 40 jobs, 100 %, 2.50 jobs/s",
               cli_progress_words(words, sizeof(words), "jobs", 40, 40, 2.5));
    CHECK_TEXT("7 jobs, 20 jobs/s", cli_progress_words(words, sizeof(words), "jobs", 7, 0, 20));
    CHECK_TEXT("1.0 MiB of 4.0 MiB, 25 %, 1.0 MiB/s, 3.0 s left",
               cli_progress_words(words, sizeof(words), NULL, 1 << 20, 4 << 20, 1 << 20));
    CHECK_TEXT("4.0 MiB", cli_progress_words(words, sizeof(words), NULL, 4 << 20, 0, 0));
}

/* Report `done` of 10 files and return the text written to standard error. */
static const char *reported(cli_progress *progress, const char *activity, uint64_t done)
{
    const gp_progress reports = cli_progress_reports(progress);
    const int saved = dup(2);
    FILE *file = tmpfile();

    fflush(stderr);
    dup2(fileno(file), 2);
    gp_progress_report(&reports, activity, "files", done, 10);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    fclose(file);
    return text;
}

TEST(progress_needs_a_terminal_and_two_seconds)
{
    const int64_t now = gp_now_ms();
    cli_progress young = { .begin_ms = now, .tell = true }, old = { .begin_ms = now - 2500, .tell = true },
                 mute = { .begin_ms = now - 2500 };

    CHECK_TEXT("", reported(&young, "listing", 5));
    CHECK_TEXT("", reported(&mute, "listing", 5));
    CHECK_TEXT("\rlisting: 5 of 10 files, 50 %\033[K", reported(&old, "listing", 5));
}

TEST(each_activity_has_its_own_rate)
{
    const int64_t now = gp_now_ms();
    cli_progress progress = { .begin_ms = now - 9000, .tell = true };

    reported(&progress, "listing", 1);
    progress.first_ms = now - 4000; /* 4 files in 4 s */
    progress.shown_ms = 1;
    CHECK_CONTAINS(reported(&progress, "listing", 5), "listing: 5 of 10 files, 50 %, 1.0");
    progress.shown_ms = 1;
    CHECK_TEXT("\rwriting: 6 of 10 files, 60 %\033[K", reported(&progress, "writing", 6));
}

/* ---- standard output ---- */

static struct {
    FILE *file;
    int standard;
} captured;

static void capture_begin(void)
{
    fflush(stdout);
    captured.file = tmpfile();
    captured.standard = dup(STDOUT_FILENO);
    if (captured.file == NULL || dup2(fileno(captured.file), STDOUT_FILENO) < 0)
        abort();
}

/* Restore standard output and read the captured text into `text`. */
static void capture_end(void)
{
    fflush(stdout);
    if (dup2(captured.standard, STDOUT_FILENO) < 0)
        abort();
    close(captured.standard);
    rewind(captured.file);
    text[fread(text, 1, sizeof(text) - 1, captured.file)] = '\0';
    fclose(captured.file);
}

static void print_begin(uint32_t gpu_workers, const char *precision, bool all_options)
{
    const cli_call call = { .train = { "max-epochs=4", "solver=adam", precision },
                            .train_count = precision == NULL ? 2 : 3 };
    const gp_train_info facts = {
        .workers = 1, .batch = 100, .batch_rank = { 100 }, .epochs = 4, .steps_per_epoch = 1, .samples = 100
    };

    capture_begin();
    train_text_begin(&call, &facts, gpu_workers, all_options, "gradpool-runs/x");
    capture_end();
}

TEST(training_prints_changed_options_and_others_on_request)
{
    print_begin(0, NULL, false);
    CHECK_CONTAINS(text, "solver adam, max-epochs 4\n1 worker, mini-batch 100 (100), 4 epochs of 1 step, ");
    print_begin(0, NULL, true);
    CHECK_CONTAINS(text, "solver adam, max-epochs 4, mini-batch-size 100, ");
    CHECK_CONTAINS(text, "loss-scale 65536");
}

TEST(first_line_of_a_training_on_gpus_names_the_precision)
{
    const char f32[] = "1 GPU worker, precision f32 without tensor cores; tf32 and bf16 are faster\n";
    const char bf16[] = "1 GPU worker, precision bf16\n";

    print_begin(1, NULL, false);
    CHECK_INT(0, strncmp(text, f32, strlen(f32)));
    print_begin(1, "precision=bf16", false);
    CHECK_INT(0, strncmp(text, bf16, strlen(bf16)));
    print_begin(0, "precision=bf16", false);
    CHECK(strstr(text, "GPU") == NULL);
}

static void print_end(uint32_t failures, uint32_t resizes)
{
    const gp_training_summary summary = { .steps = 1,
                                          .seconds = 2,
                                          .loss = NAN,
                                          .validation_accuracy = NAN,
                                          .validation_rmse = NAN,
                                          .restarts = failures,
                                          .resizes = resizes,
                                          .paused_seconds = 0.02 };

    capture_begin();
    train_text_end(&summary);
    capture_end();
}

TEST(the_end_of_a_training_counts_worker_failures_and_resizes)
{
    print_end(0, 0);
    CHECK_TEXT("finished after 1 step, 2.0 s, 0 images/s", text);
    print_end(1, 0);
    CHECK_TEXT("finished after 1 step, 2.0 s, 0 images/s; recovered from 1 worker failure (paused 0.02 s)",
               text);
    print_end(0, 2);
    CHECK_CONTAINS(text, "; recovered from 2 resizes (paused 0.02 s in total)");
    print_end(2, 1);
    CHECK_CONTAINS(text, "; recovered from 2 worker failures and 1 resize (paused 0.02 s in total)");
}

TEST(the_table_of_jobs_has_the_recorded_time_of_submission)
{
    show_table *table = show_jobs_new();

    REQUIRE(table != NULL);
    setenv("TZ", "UTC", 1);
    show_job(table, &(gp_job_info){ .id = 1, .age_seconds = 5.9, .submitted_ms = 45296789, .exit_code = -1 });
    capture_begin();
    show_table_print_free(table);
    capture_end();
    CHECK_CONTAINS(text, " 12:34:56 ");
}

/* "日本" is four columns wide, "é" with a combining accent one, and an emoji two. */
TEST(wide_characters_take_two_columns)
{
    FILE *file = tmpfile();
    show_table *table = show_table_new(2, "class\tcount");

    show_cells(table, "%s\t%d", "\u65e5\u672c", 1);
    show_cells(table, "%s\t%d", "e\u0301", 2);
    show_cells(table, "%s\t%d", "\U0001f600", 3);
    show_table_write(table, file);
    show_table_free(table);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    CHECK_TEXT("class  count\n"
               "\u65e5\u672c   1\n"
               "e\u0301      2\n"
               "\U0001f600     3\n",
               text);
    CHECK_INT(0, show_cut("\u65e5\u672c", 1));
    CHECK_INT(3, show_cut("\u65e5\u672c", 3));
    CHECK_INT(6, show_cut("\u65e5\u672c", 4));
    CHECK_INT(3, show_cut("e\u0301x", 1));
    CHECK_INT(2, show_cut("ab\nc", 80));
}
