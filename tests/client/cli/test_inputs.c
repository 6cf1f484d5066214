/* test_inputs.c: inputs for `gradpool parfor` and the command templates that use them. */
#include "client/cli/run/inputs.h"

#include <fcntl.h>
#include <unistd.h>

#include "client/cli/run/template.h"
#include "tests/gp_test.h"

enum { TEXT_BYTES = 1 << 16 };

static char text[TEXT_BYTES]; /* all combinations, one per line, values separated by blanks */

static gp_status all(const char *const *words, int count, const char *file, bool null_ended, gp_error *err)
{
    cli_inputs *inputs = NULL;
    inputs_state state = INPUTS_VALUES;
    gp_status status = inputs_new(&inputs, words, count, file, null_ended, err);
    size_t used = 0;

    text[0] = '\0';
    while (status == GP_OK && state == INPUTS_VALUES) {
        const char *const *values;

        status = inputs_next(inputs, &state, &values, err);
        for (int i = 0; status == GP_OK && state == INPUTS_VALUES && i < inputs_sources(inputs); i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", values[i],
                                     i + 1 == inputs_sources(inputs) ? "\n" : " ");
    }
    inputs_free(inputs);
    return status;
}

#define ALL(...)                                                                                             \
    all((const char *const[]){ __VA_ARGS__ },                                                                \
        (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)), NULL, false, &err)

TEST(ranges_count_up_and_down_with_exact_decimals)
{
    gp_error err;

    REQUIRE_OK(ALL("1:5"), err);
    CHECK_TEXT("1\n2\n3\n4\n5\n", text);
    REQUIRE_OK(ALL("-1:2:4"), err);
    CHECK_TEXT("-1\n1\n3\n", text);
    REQUIRE_OK(ALL("3:-1:1"), err);
    CHECK_TEXT("3\n2\n1\n", text);
    REQUIRE_OK(ALL("0:0.1:0.35"), err);
    CHECK_TEXT("0.00\n0.10\n0.20\n0.30\n", text);
    REQUIRE_OK(ALL("-0.5:0.5:0.5"), err);
    CHECK_TEXT("-0.5\n0.0\n0.5\n", text);
    REQUIRE_OK(ALL("7:7"), err);
    CHECK_TEXT("7\n", text);
}

TEST(several_inputs_give_every_combination)
{
    gp_error err;

    REQUIRE_OK(ALL("a,b c,,d"), err);
    CHECK_TEXT("a\nb c\n\nd\n", text);
    REQUIRE_OK(ALL("lr=0.1,0.2", "seed=1:2", "x,y"), err);
    CHECK_TEXT("0.1 1 x\n0.1 1 y\n0.1 2 x\n0.1 2 y\n0.2 1 x\n0.2 1 y\n0.2 2 x\n0.2 2 y\n", text);
    REQUIRE_OK(ALL("file=/a/b=c"), err);
    CHECK_TEXT("/a/b=c\n", text);
}

TEST(a_single_word_is_a_list_of_one_value)
{
    gp_error err;

    REQUIRE_OK(ALL("1"), err);
    CHECK_TEXT("1\n", text);
    REQUIRE_OK(ALL("photo.jpg", "1:2"), err);
    CHECK_TEXT("photo.jpg 1\nphoto.jpg 2\n", text);
    REQUIRE_OK(ALL("http://host:80/a"), err);
    CHECK_TEXT("http://host:80/a\n", text);
}

TEST(the_number_of_combinations_is_known_without_making_them)
{
    cli_inputs *inputs;
    gp_error err;

    REQUIRE_OK(
        inputs_new(&inputs, (const char *const[]){ "1:1000000000", "1:1000000000" }, 2, NULL, false, &err),
        err);
    CHECK(inputs_count(inputs) == 1000000000000000000u);
    inputs_free(inputs);
    REQUIRE_OK(inputs_new(&inputs, (const char *const[]){ "1:1000000000", "1:1000000000", "1:1000" }, 3, NULL,
                          false, &err),
               err);
    CHECK(inputs_count(inputs) == UINT64_MAX);
    inputs_free(inputs);
}

TEST(malformed_inputs_are_refused_with_the_expected_form)
{
    gp_error err;

    CHECK_STATUS(GP_EINVAL, ALL(""));
    CHECK_CONTAINS(err.message, "FIRST:LAST");
    CHECK_STATUS(GP_EINVAL, ALL("5:1"));
    CHECK_CONTAINS(err.message, "empty");
    CHECK_STATUS(GP_EINVAL, ALL("1:0:5"));
    CHECK_CONTAINS(err.message, "step of 0");
    CHECK_STATUS(GP_EINVAL, ALL("1:2:3:4"));
    CHECK_STATUS(GP_EINVAL, ALL("a=1,2", "a=3"));
    CHECK_CONTAINS(err.message, "duplicate input");
    CHECK_STATUS(GP_ELIMIT, ALL("1:99999999999999999999"));
    CHECK_STATUS(GP_ELIMIT, ALL("0:0.00000000001:1"));
    CHECK_STATUS(GP_EINVAL, all(NULL, 0, NULL, false, &err));
    CHECK_STATUS(GP_EIO, all(NULL, 0, "/nonexistent", false, &err));
    CHECK_CONTAINS(err.message, "/nonexistent");
}

static void file_make(char *path, const char *data, size_t bytes)
{
    strcpy(path, "/tmp/gpt-XXXXXX");
    int fd = mkstemp(path);

    CHECK_INT(bytes, write(fd, data, bytes));
    close(fd);
}

TEST(every_line_of_a_file_is_a_value_even_if_empty_or_unterminated)
{
    char path[20];
    gp_error err;

    file_make(path, "one\n\ntwo words\nlast", 19);
    REQUIRE_OK(all(NULL, 0, path, false, &err), err);
    CHECK_TEXT("one\n\ntwo words\nlast\n", text);
    REQUIRE_OK(all((const char *const[]){ "x=1:2" }, 1, path, false, &err), err);
    CHECK_TEXT("one 1\none 2\n 1\n 2\ntwo words 1\ntwo words 2\nlast 1\nlast 2\n", text);
    unlink(path);
    file_make(path, "a\nb\0c\0", 6);
    REQUIRE_OK(all(NULL, 0, path, true, &err), err);
    CHECK_TEXT("a\nb\nc\n", text);
    CHECK_STATUS(GP_EINVAL, all(NULL, 0, path, false, &err));
    CHECK_CONTAINS(err.message, "--null");
    unlink(path);
    file_make(path, "", 0);
    REQUIRE_OK(all((const char *const[]){ "x=1:2" }, 1, path, false, &err), err);
    CHECK_TEXT("", text);
    unlink(path);
}

TEST(a_line_longer_than_an_argument_is_refused_with_its_number)
{
    char path[20];
    size_t bytes = INPUTS_VALUE_BYTES_MAX + 10;
    char *data = malloc(bytes);
    gp_error err;

    memset(data, 'x', bytes);
    data[1] = '\n';
    file_make(path, data, bytes);
    CHECK_STATUS(GP_ELIMIT, all(NULL, 0, path, false, &err));
    CHECK_CONTAINS(err.message, "input 2 is longer");
    unlink(path);
    file_make(path, data, 2 + INPUTS_VALUE_BYTES_MAX - 1); /* the kernel's maximum */
    CHECK_STATUS(GP_OK, all(NULL, 0, path, false, &err));
    unlink(path);
    free(data);
}

TEST(reading_a_pipe_never_blocks)
{
    int pipes[2], stdin_copy = dup(0);
    cli_inputs *inputs;
    inputs_state state;
    const char *const *values;
    gp_error err;

    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0 && dup2(pipes[0], 0) == 0);
    REQUIRE_OK(inputs_new(&inputs, (const char *const[]){ "x,y" }, 1, "-", false, &err), err);
    CHECK(inputs_count(inputs) == UINT64_MAX);
    REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
    CHECK_INT(INPUTS_WAIT, state);
    CHECK_INT(0, inputs_fd(inputs));
    CHECK_INT(5, write(pipes[1], "a\nbcd", 5));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
        REQUIRE(state == INPUTS_VALUES);
        CHECK_TEXT("a", values[0]);
        CHECK_TEXT(i == 0 ? "x" : "y", values[1]);
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
        CHECK_INT(INPUTS_WAIT, state);
    }
    CHECK_INT(2, write(pipes[1], "e\n", 2));
    REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
    REQUIRE(state == INPUTS_VALUES);
    CHECK_TEXT("bcde", values[0]);
    CHECK_TEXT("x", values[1]);
    close(pipes[1]);
    REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
    CHECK_TEXT("y", values[1]);
    REQUIRE_OK(inputs_next(inputs, &state, &values, &err), err);
    CHECK_INT(INPUTS_END, state);
    CHECK_INT(-1, inputs_fd(inputs));
    inputs_free(inputs);
    dup2(stdin_copy, 0);
    close(stdin_copy);
    close(pipes[0]);
}

static gp_status inputs_try(cli_inputs **inputs)
{
    return inputs_new(inputs, (const char *const[]){ "a,b", "x=1:3" }, 2, "/dev/null", false, NULL);
}

TEST(failed_allocations_leak_no_inputs)
{
    cli_inputs *inputs = NULL;

    CHECK_EVERY_ALLOCATION(inputs_try(&inputs), inputs_free(inputs));
}

/* ---- templates ---- */

static const char *line_of(const char *const *words, int count, const char *const *names, int name_count,
                           bool shell, const char *const *values)
{
    cli_template *t;
    const char *const *arguments;
    const char *line;
    gp_error err;

    text[0] = '\0';
    if (template_new(&t, words, count, names, name_count, shell, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return text;
    }
    if (template_fill(t, values, 7, 3, &arguments, &err) != GP_OK || template_line(t, &line, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    else
        snprintf(text, sizeof(text), "%s", line);
    template_free(t);
    return text;
}

static const char *const unnamed[] = { "", "" };

#define WORDS(...)                                                                                           \
    (const char *const[]){ __VA_ARGS__ }, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))
#define LINE(value, ...)       line_of(WORDS(__VA_ARGS__), unnamed, 1, false, (const char *const[]){ value })
#define SHELL_LINE(value, ...) line_of(WORDS(__VA_ARGS__), unnamed, 1, true, (const char *const[]){ value })

/* GNU parallel 20221122 prints the expected lines for the same values. */
TEST(path_placeholders_match_gnu_parallel)
{
    static const char *const recorded[][2] = {
        { "a/b.c", "a/b=b.c=a=7" },    { "d", "d=d=.=7" },
        { "a.b/c", "a.b/c=c=a.b=7" },  { "/x.y", "/x=x.y=/=7" },
        { "dir/", "dir/==.=7" },       { ".hid", "=.hid=.=7" },
        { "a/.b.c", "a/.b=.b.c=a=7" }, { "x.tar.gz", "x.tar=x.tar.gz=.=7" },
    };

    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        const char *line = LINE(recorded[i][0], "{.}={/}={//}={#}");

        CHECK_TEXT(recorded[i][1], line);
    }
}

TEST(values_replace_placeholders_or_follow_the_command)
{
    CHECK_TEXT("echo a", LINE("a", "echo"));
    CHECK_TEXT("cp a a.bak", LINE("a", "cp", "{}", "{}.bak"));
    CHECK_TEXT("x 7 3 a", LINE("a", "x", "{#}", "{%}"));
    CHECK_TEXT("awk '{print}' 'b c'", LINE("b c", "awk", "{print}"));
    CHECK_TEXT("echo '{a}' '{ }' '{3}'", LINE("a", "echo", "{{}}", "{ }", "{3}"));
    CHECK_TEXT("echo '' a", LINE("a", "echo", ""));
}

TEST(several_inputs_have_numbers_and_names)
{
    static const char *const names[] = { "lr", "" };
    static const char *const values[] = { "0.1", "d/e.f" };

    CHECK_TEXT("run 0.1 d/e.f '{2.}'", line_of(WORDS("run", "{lr}", "{2}", "{2.}"), names, 2, false, values));
    CHECK_TEXT("run 0.1 d/e.f", line_of(WORDS("run"), names, 2, false, values));
    CHECK_TEXT("run 0.1 d/e.f end", line_of(WORDS("run", "{}", "end"), names, 2, false, values));
    CHECK_TEXT("run '[0.1 d/e.f]'", line_of(WORDS("run", "[{}]"), names, 2, false, values));
    CHECK_TEXT("run '{other}' 0.1", line_of(WORDS("run", "{other}", "{1}"), names, 2, false, values));
}

TEST(values_are_quoted_in_shell_lines_only)
{
    CHECK_TEXT("echo 'a b' | wc -c", SHELL_LINE("a b", "echo {} | wc -c"));
    CHECK_TEXT("echo 'it'\\''s $x'", SHELL_LINE("it's $x", "echo"));
    CHECK_TEXT("echo 'a' | tr x ''", SHELL_LINE("", "echo 'a' | tr x"));
    CHECK_TEXT("printf %s 'a b' ''\\''' '*'", line_of(WORDS("printf", "%s", "{1}", "{2}", "*"), unnamed, 2,
                                                      false, (const char *const[]){ "a b", "'" }));
}

TEST(command_without_inputs_is_unchanged)
{
    CHECK_TEXT("echo '{}' 7", line_of(WORDS("echo", "{}", "{#}"), NULL, 0, false, NULL));
}
