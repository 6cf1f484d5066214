/* Spaces: the notation and its errors, conversion to the unit cube, conditions, enumeration. */
#include "tests/gp_test.h"

#include "common/search/space.h"

static gp_space *space;

static gp_status parse(const char *text, gp_error *err)
{
    gp_space_free(space);
    space = NULL;
    return gp_space_parse(&space, text, NULL, NULL, err);
}

TEARDOWN()
{
    gp_space_free(space);
    space = NULL;
}

TEST(words_describe_ranges_and_lists)
{
    gp_error err;

    REQUIRE_OK(parse(" lr=log:1e-4:0.3\tlayers=int:1:4 width=int:log:8:512\n x=-1.5:2 y=real:1:2 "
                     "batch=32,64,128 solver=sgdm,adam,1 on=true,false one=5 steps=0.1:0.1:0.5",
                     &err),
               err);
    CHECK_INT(10, space->count);
    CHECK(space->parameters[0].kind == GP_SPACE_REAL && space->parameters[0].logarithmic);
    CHECK_NEAR(1e-4, space->parameters[0].low, 0);
    CHECK_NEAR(0.3, space->parameters[0].high, 0);
    CHECK(space->parameters[1].kind == GP_SPACE_INTEGER && !space->parameters[1].logarithmic);
    CHECK(space->parameters[2].kind == GP_SPACE_INTEGER && space->parameters[2].logarithmic);
    CHECK(space->parameters[3].kind == GP_SPACE_REAL);
    CHECK_NEAR(-1.5, space->parameters[3].low, 0);
    CHECK(space->parameters[4].kind == GP_SPACE_REAL);
    CHECK(space->parameters[5].ordered);
    CHECK(!space->parameters[6].ordered);
    CHECK(!space->parameters[7].ordered);
    CHECK_INT(1, space->parameters[8].count);
    CHECK_INT(5, space->parameters[9].count);
    CHECK_TEXT("0.3", space->parameters[9].values[2].text);
    CHECK(space->parameters[9].ordered);
}

static gp_search_type type_of(void *context, const char *name)
{
    (void)context;
    return strcmp(name, "rate") == 0     ? GP_SEARCH_REAL
           : strcmp(name, "epochs") == 0 ? GP_SEARCH_INTEGER
                                         : GP_SEARCH_UNTYPED;
}

TEST(the_caller_knows_the_types_of_ranges)
{
    gp_error err;

    REQUIRE_OK(gp_space_parse(&space, "rate=0:1 epochs=1:9 rate2=int:0:1", type_of, NULL, &err), err);
    CHECK(space->parameters[0].kind == GP_SPACE_REAL);
    CHECK(space->parameters[1].kind == GP_SPACE_INTEGER);
    CHECK(space->parameters[2].kind == GP_SPACE_INTEGER);
    gp_space_free(space);
    space = NULL;
    CHECK_STATUS(GP_EINVAL, gp_space_parse(&space, "epochs=0.5:9", type_of, NULL, &err));
    CHECK_CONTAINS(err.message, "whole numbers");
}

TEST(json_describes_the_same_and_conditions)
{
    gp_error err;

    REQUIRE_OK(parse("{\"solver\": [\"sgdm\", \"adam\", 3, true], \"lr\": \"log:1e-4:0.3\","
                     " \"momentum\": {\"values\": \"0.5:0.99\", \"when\": {\"solver\": [\"sgdm\", 3]}}}",
                     &err),
               err);
    CHECK_INT(3, space->count);
    CHECK_INT(1, space->parameters[2].condition_count);
    CHECK(space->parameters[2].conditions[0].allowed[0]);
    CHECK(!space->parameters[2].conditions[0].allowed[1]);
    CHECK(space->parameters[2].conditions[0].allowed[2]);
    CHECK(!space->parameters[2].conditions[0].allowed[3]);
}

TEST(each_error_of_a_space_names_its_cause)
{
    static const struct {
        const char *text, *message;
        gp_status status;
    } cases[] = {
        { "", "no parameters", GP_EINVAL },
        { "{}", "no parameters", GP_EINVAL },
        { "lr", "'lr': must be NAME=VALUES", GP_EINVAL },
        { "=1", "invalid parameter name ''", GP_EINVAL },
        { "l/r=1", "invalid parameter name 'l/r'", GP_EINVAL },
        { "a=1 a=2", "'a' is given twice", GP_EINVAL },
        { "a=", "value of the list is empty", GP_EINVAL },
        { "a=1,,2", "value of the list is empty", GP_EINVAL },
        { "a=1,2,1.0", "'1' is listed twice", GP_EINVAL },
        { "a=x,y,x", "'x' is listed twice", GP_EINVAL },
        { "a=\x1b[0m,b", "a value of the space", GP_EINVAL },
        { "a=1:2", "write int:1:2 or real:1:2", GP_EINVAL },
        { "a=log:1:2", "write int:log:1:2 or real:log:1:2", GP_EINVAL },
        { "a=1.0:x", "'x' is not a number", GP_EINVAL },
        { "a=0.5:inf", "'inf' is not a number", GP_EINVAL },
        { "a=0.5:1e999", "'1e999' is not a number", GP_EINVAL },
        { "a=1:2:3:4", "malformed range", GP_EINVAL },
        { "a=log:int:1:2", "'int' is not a number", GP_EINVAL },
        { "a=2.0:1.0", "lower bound 2 must be below the upper bound 1", GP_EINVAL },
        { "a=1.0:1.0", "must be below", GP_EINVAL },
        { "a=1:0:3", "the step 0 must be above 0", GP_EINVAL },
        { "a=0:0.001:2", "2001 values, at most 1000", GP_ELIMIT },
        { "a=0:1e-300:1e300", "values, at most 1000", GP_ELIMIT },
        { "a=log:1:1:3", "list its values", GP_EINVAL },
        { "a=int:1:0.5:3", "must be whole numbers", GP_EINVAL },
        { "a=int:1.5:3", "must be whole numbers", GP_EINVAL },
        { "a=int:0:1e300", "at most 2^53", GP_EINVAL },
        { "a=log:0.0:1.0", "must be above 0", GP_EINVAL },
        { "a=log:1e20:100000000000000010000.0", "too close for a logarithmic range", GP_EINVAL },
        { "a=int:log:9007199254740990:9007199254740991", "too close for a logarithmic range", GP_EINVAL },
        { "a=int:log:0:5", "must be at least 1", GP_EINVAL },
        { "a=-1e308:1e308", "too wide", GP_EINVAL },
        { "{\"a\": 3}", "array or a range as text", GP_EINVAL },
        { "{\"a\": []}", "list of values is empty", GP_EINVAL },
        { "{\"a\": [null]}", "value 1 of the list", GP_EINVAL },
        { "{\"a\": [[1]]}", "value 1 of the list", GP_EINVAL },
        { "{\"a\": {\"values\": [1], \"wen\": 1}}", "unknown member 'wen'", GP_EINVAL },
        { "{\"a\": {\"when\": {}}}", "array or a range as text", GP_EINVAL },
        { "{\"a\": {\"values\": [1], \"when\": 3}}", "'when' must be an object", GP_EINVAL },
        { "{\"a\": {\"values\": [1], \"when\": {\"b\": [1]}}, \"b\": [1]}", "must be a parameter before it",
          GP_EINVAL },
        { "{\"a\": {\"values\": [1], \"when\": {\"a\": [1]}}}", "must be a parameter before it", GP_EINVAL },
        { "{\"b\": \"0.1:0.2\", \"a\": {\"values\": [1], \"when\": {\"b\": [0.1]}}}", "it must be a list",
          GP_EINVAL },
        { "{\"b\": [1, 2], \"a\": {\"values\": [1], \"when\": {\"b\": 1}}}", "must be an array", GP_EINVAL },
        { "{\"b\": [1, 2], \"a\": {\"values\": [1], \"when\": {\"b\": []}}}", "must be an array", GP_EINVAL },
        { "{\"b\": [1, 2], \"a\": {\"values\": [1], \"when\": {\"b\": [3]}}}", "'3' is not in the list",
          GP_EINVAL },
        { "{\"a\": [1]", "malformed JSON", GP_EINVAL },
        { "{\"a\": [1], \"a\": [2]}", "malformed JSON", GP_EINVAL },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_error err = { GP_OK, "" };

        CHECK_STATUS(cases[i].status, parse(cases[i].text, &err));
        CHECK_CONTAINS(err.message, cases[i].message);
    }
}

TEST(a_space_has_limits)
{
    char *text = malloc(2 << 20);
    size_t bytes = 0;
    gp_error err;

    REQUIRE(text != NULL);
    for (int i = 0; i <= GP_SEARCH_PARAMETERS_MAX; i++)
        bytes += (size_t)sprintf(text + bytes, "p%d=0.0:1.0 ", i);
    CHECK_STATUS(GP_ELIMIT, parse(text, &err));
    CHECK_CONTAINS(err.message, "more than 64 parameters");
    bytes = (size_t)sprintf(text, "p=0");
    for (int i = 1; i <= GP_SEARCH_VALUES_MAX; i++)
        bytes += (size_t)sprintf(text + bytes, ",%d", i);
    CHECK_STATUS(GP_ELIMIT, parse(text, &err));
    CHECK_CONTAINS(err.message, "more than 1000 values");
    memset(text, ' ', (2 << 20) - 1);
    text[(2 << 20) - 1] = '\0';
    CHECK_STATUS(GP_ELIMIT, parse(text, &err));
    CHECK_CONTAINS(err.message, "more than 1048576 bytes");
    free(text);
}

/* Return the decoded value of the only parameter at a coordinate. */
static double at(double unit)
{
    double point;

    gp_space_decode(space, &unit, &point);
    return point;
}

TEST(coordinates_become_values)
{
    gp_error err;

    REQUIRE_OK(parse("x=-2.0:6.0", &err), err);
    CHECK_NEAR(-2, at(0.0), 0);
    CHECK_NEAR(2, at(0.5), 0);
    CHECK_NEAR(6, at(1.0), 0);
    CHECK_NEAR(0.469136, at(0.308641975), 0); /* a short decimal */
    REQUIRE_OK(parse("x=log:1e-4:1e0", &err), err);
    CHECK_NEAR(1e-2, at(0.5), 0);
    CHECK_NEAR(1e-4, at(0.0), 0);
    CHECK_NEAR(1, at(1.0), 0);
    REQUIRE_OK(parse("x=int:1:4", &err), err);
    CHECK_NEAR(1, at(0.0), 0);
    CHECK_NEAR(1, at(0.2499), 0);
    CHECK_NEAR(2, at(0.2501), 0);
    CHECK_NEAR(4, at(0.7501), 0);
    CHECK_NEAR(4, at(1.0), 0);
    REQUIRE_OK(parse("x=int:log:1:1000", &err), err);
    CHECK_NEAR(1, at(0.0), 0);
    CHECK_NEAR(22, at(0.5), 0); /* exp((log(0.5) + log(1000.5)) / 2) = 22.4 */
    REQUIRE_OK(parse("x=a,b", &err), err);
    CHECK_NEAR(0, at(0.49), 0);
    CHECK_NEAR(1, at(0.51), 0);
}

TEST(a_value_keeps_its_cell)
{
    static const char *const spaces[] = { "x=int:-3:5", "x=int:log:1:300", "x=a,b,c,d,e", "x=int:7:8" };
    gp_error err;

    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        REQUIRE_OK(parse(spaces[i], &err), err);
        for (double value = space->parameters[0].low; value <= space->parameters[0].high; value++) {
            double unit;

            gp_space_encode(space, &value, &unit);
            CHECK_NEAR(value, at(unit), 0);
        }
    }
}

TEST(enumeration_visits_each_point_that_applies_once)
{
    double point[3];
    gp_error err;

    REQUIRE_OK(parse("{\"a\": [\"x\", \"y\"], \"b\": {\"values\": \"int:1:3\", \"when\": {\"a\": [\"x\"]}},"
                     " \"c\": [1, 2]}",
                     &err),
               err);
    CHECK_INT(8, gp_space_points(space, 100)); /* x: 3 * 2, y: 2 */
    CHECK_INT(5, gp_space_points(space, 5));
    gp_space_first(space, point);
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(i < 6 ? 0 : 1, point[0], 0);
        CHECK_NEAR(i < 6 ? 1 + i / 2 : 1, point[1], 0);
        CHECK_NEAR(i % 2, point[2], 0);
        CHECK(gp_space_next(space, point) == (i < 7));
    }
    REQUIRE_OK(parse("x=0.0:1.0 y=1,2", &err), err);
    CHECK_INT(100, gp_space_points(space, 100));
}

TEST(conditions_of_many_parameters_take_linear_time)
{
    /* Each parameter names all earlier ones: a check by recursion would take 2^40 steps. */
    char text[32768];
    size_t bytes = 0;
    gp_error err;

    bytes += (size_t)sprintf(text, "{\"p0\": [1, 2]");
    for (int i = 1; i < 40; i++) {
        bytes += (size_t)sprintf(text + bytes, ", \"p%d\": {\"values\": [1, 2], \"when\": {", i);
        for (int k = 0; k < i; k++)
            bytes += (size_t)sprintf(text + bytes, "%s\"p%d\": [1]", k == 0 ? "" : ", ", k);
        bytes += (size_t)sprintf(text + bytes, "}}");
    }
    sprintf(text + bytes, "}");
    REQUIRE_OK(parse(text, &err), err);
    CHECK_INT(41, gp_space_points(space, 1000));
}

TEST(points_are_read_and_written)
{
    double point[4];
    char *text;
    gp_error err;

    REQUIRE_OK(
        parse("{\"a\": [\"x\", \"y\", 2, true], \"b\": {\"values\": \"int:1:3\", \"when\": {\"a\": [\"x\"]}},"
              " \"c\": \"0.0:1.0\"}",
              &err),
        err);
    REQUIRE_OK(gp_space_point_parse(space, "{\"c\": 0.25, \"a\": \"x\", \"b\": 2}", point, &err), err);
    REQUIRE_OK(gp_space_point_text(space, point, &text, &err), err);
    CHECK_TEXT("{\"a\": \"x\", \"b\": 2, \"c\": 0.25}", text);
    gp_free(text);
    REQUIRE_OK(gp_space_point_parse(space, "a=2.0 c=-0", point, &err), err);
    REQUIRE_OK(gp_space_point_text(space, point, &text, &err), err);
    CHECK_TEXT("{\"a\": 2, \"c\": 0}", text);
    gp_free(text);
    REQUIRE_OK(gp_space_point_parse(space, "{\"a\": true, \"c\": 1}", point, &err), err);
    REQUIRE_OK(gp_space_point_text(space, point, &text, &err), err);
    CHECK_TEXT("{\"a\": true, \"c\": 1}", text);
    gp_free(text);
}

TEST(each_error_of_a_point_names_its_cause)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "a=x b=2", "parameter 'color' has no value" },
        { "a=y b=2 color=0.1", "'b' has a value, but does not apply with these values of 'a'" },
        { "a=x b=2 colour=0.1", "no parameter 'colour'; did you mean 'color'?" },
        { "a=x b=2 zzzzzz=0.1", "no parameter 'zzzzzz'" },
        { "a=x a=x", "'a' is given twice" },
        { "a=z b=2 color=0.1", "a: 'z' is not in the list" },
        { "a=3 color=0.1", "a: '3' is not in the list" },
        { "a=x b=2.5 color=0.1", "b: 2.5 must be a whole number" },
        { "a=x b=4 color=0.1", "b: 4 is outside the range 1 to 3" },
        { "a=x b=2 color=blue", "color: 'blue' is not a number" },
        { "a=x b=2 color=nan", "color: 'nan' is not a number" },
        { "a=x b", "invalid word 'b'" },
        { "{\"a\": false}", "a: 'false' is not in the list" },
        { "{\"a\": null}", "must be a number, a text" },
        { "{\"a\": \"x\", \"b\": \"2\"}", "b: the value must be a number" },
        { "{\"a\"}", "malformed JSON" },
    };
    gp_error err;

    REQUIRE_OK(
        parse("{\"a\": [\"x\", \"y\", 2], \"b\": {\"values\": \"int:1:3\", \"when\": {\"a\": [\"x\"]}},"
              " \"color\": \"0.0:1.0\"}",
              &err),
        err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double point[3] = { 7, 7, 7 };

        CHECK_STATUS(GP_EINVAL, gp_space_point_parse(space, cases[i].text, point, &err));
        CHECK_CONTAINS(err.message, cases[i].message);
        CHECK(point[0] == 7 && point[1] == 7 && point[2] == 7);
    }
}

TEST(a_space_survives_each_failing_allocation)
{
    const char *json = "{\"a\": [\"x\", 2], \"b\": {\"values\": \"1.5:3\", \"when\": {\"a\": [\"x\"]}}}";
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_space_parse(&space, "a=1,2,3 b=0.1:0.2", NULL, NULL, &err), parse("x", NULL));
    CHECK_EVERY_ALLOCATION(gp_space_parse(&space, json, NULL, NULL, &err), parse("x", NULL));
}
