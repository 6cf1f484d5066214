/* test_advise.c -- advise and bench: short trainings on a real pool, the numbers that they print, and what is left. */
#include "tests/service/commands.h"

#define LENET "--network", "lenet", "--data", "digits:600", "--mini-batch-size", "32"

static void advise_begin(void)
{
    static char cache[800];

    exec_begin();
    snprintf(cache, sizeof(cache), "%s", in_root("cache"));
    setenv("XDG_CACHE_HOME", cache, 1);
}

static gp_json *parse(const char *text)
{
    gp_json *json = NULL;
    gp_error e;

    if (gp_json_parse(&json, text, strlen(text), &e) != GP_OK)
        GP_TEST_FAIL("%s in: %s", e.message, text);
    return json;
}

static double number(const gp_json *json, const char *name)
{
    return gp_json_number(gp_json_member(json, name), -1);
}

TEST(advise_predicts_every_number_of_workers_and_a_training_hears_of_it)
{
    gp_json *json;
    const gp_json *rows, *one, *two;

    advise_begin();
    RUN_CODE(0, "advise", LENET, "--steps", "12", "--check", "--json");
    CHECK_TEXT("", err);
    json = parse(out);
    rows = gp_json_member(json, "workers");
    CHECK_INT(2, gp_json_count(rows));
    one = gp_json_element(rows, 0);
    two = gp_json_element(rows, 1);
    CHECK(number(one, "step_seconds") > 0 && number(two, "exchange_seconds") > 0);
    CHECK(number(one, "efficiency") == 1.0 && number(one, "memory_bytes") > 129068 * 4);
    CHECK_INT(32, (int)number(two, "batch"));
    CHECK_INT(16, (int)number(two, "share"));
    CHECK(number(two, "images_per_second") > 0 && number(two, "batch_for_80_percent") >= 2);
    CHECK_INT(129068 * 4, (int)number(gp_json_member(json, "model"), "gradient_bytes"));
    CHECK(number(gp_json_member(json, "check"), "measured_seconds") > 0);
    CHECK(number(json, "best") == 1 || number(json, "best") == 2);
    gp_json_free(json);
    CHECK(access(in_w("gradpool-runs"), F_OK) != 0); /* nothing was trained */

    RUN_CODE(0, "train", LENET, "--epochs", "2", "--plots", "none");
    CHECK_CONTAINS(out, "\nadvised were ");
    CHECK_CONTAINS(out, " images/s, measured ");
    RUN_CODE(0, "train", LENET, "--epochs", "2", "--solver", "adam");
    CHECK(strstr(out, "advised were") == NULL); /* another training */
    RUN_CODE(0, "status", "--json");
    CHECK(strstr(out, "\"busy\"") == NULL);
    pools_end();
}

TEST(advise_guesses_beyond_the_pool_and_says_so)
{
    advise_begin();
    RUN_CODE(0, "advise", LENET, "--steps", "10", "--workers", "1:4");
    CHECK_CONTAINS(out, "workers  batch  each  step ms  images/s  efficiency  batch for 80 %  memory each\n");
    CHECK_CONTAINS(out, "4 ?");
    CHECK_CONTAINS(out, "?: more workers than this pool has; their exchange is a guess");
    CHECK_CONTAINS(err, "exchange on 2 workers: ");
    pools_end();
}

TEST(advise_passes_on_what_is_wrong_with_the_training)
{
    advise_begin();
    RUN_CODE(2, "advise", "--network", "lenet");
    CHECK_CONTAINS(err, "--data is missing");
    RUN_CODE(1, "advise", "--network", "lenett", "--data", "digits:600");
    CHECK_CONTAINS(err, "did you mean 'lenet'?");
    RUN_CODE(1, "advise", "--network", "lenet", "--data", "digits:20");
    CHECK_CONTAINS(err, "has only 20 samples");
    pools_end();
}
