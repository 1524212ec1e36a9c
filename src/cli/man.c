/* man.c - manual pages, written from the tables that --help reads. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <manta/version.h>

#include "cli/command.h"
#include "cli/man.h"
#include "cli/print.h"
#include "cli/settings.h"

/* Text with what roff would take for itself escaped. */
static void write_text(const char *text)
{
    bool start = true;

    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) print_out("\\&");
        start = *text == '\n';
        if (*text == '-') {
            print_out("\\-");
        } else if (*text == '\\') {
            print_out("\\e");
        } else if (*text == '\n') {
            print_out("\n");
        } else {
            print_out("%c", *text);
            /* A list without blanks may be broken after any of its items. */
            if (*text == ',' && text[1] && text[1] != ' ' && text[1] != '\n') print_out("\\:");
        }
    }
}

/* Paragraphs: an empty line begins a new one. */
static void put_text(const char *text)
{
    for (const char *end; (end = strstr(text, "\n\n")); text = end + 2) {
        char part[4096];
        snprintf(part, sizeof part, "%.*s", (int)(end - text), text);
        write_text(part);
        print_out("\n.PP\n");
    }
    write_text(text);
    print_out("\n");
}

static void put_option(const cli_option *p)
{
    if (p->kind == OPTION_LATER) return;
    print_out(".TP\n");
    if (p->kind == OPTION_OUTPUT) print_out("\\fB\\-o\\fR \\fI%s\\fR, ", p->arg);
    print_out("\\fB\\-\\-");
    write_text(p->name);
    print_out("\\fR");
    if (p->arg) print_out(p->kind == OPTION_MAYBE ? " [\\fI%s\\fR]" : "=\\fI%s\\fR", p->arg);
    print_out("\n");
    write_text(p->help);
    print_out(".\n");
}

static void put_command(const command *c)
{
    put_text(c->text);
    for (int g = 0; g < COMMAND_GROUPS && c->groups[g]; g++) {
        const char *title = c->groups[g]->title;
        print_out(".SS \"%.*s\"\n", (int)strlen(title) - 1, title);
        for (const cli_option *p = c->groups[g]->options; p->name; p++) put_option(settings_row(p));
    }
}

static void put_examples(const char *text)
{
    print_out(".nf\n");
    write_text(text);
    print_out("\n.fi\n");
}

static void put_head(const char *name, const char *about)
{
    char title[64];
    size_t i;

    for (i = 0; name[i] && i + 1 < sizeof title; i++) title[i] = (char)toupper((unsigned char)name[i]);
    title[i] = '\0';
    print_out(".\\\" Made by 'manta help --man': change src/cli, then run docs/man/make.sh.\n");
    print_out(".TH %s 1 \"\" \"Manta %s\" \"Manta\"\n.ad l\n.SH NAME\n", title, MANTA_VERSION_TEXT);
    write_text(name);
    print_out(" \\- ");
    print_out("%c", tolower((unsigned char)*about));
    write_text(about + 1);
    print_out("\n");
}

static void put_synopsis(const command *c)
{
    print_out(".B manta ");
    write_text(c->name);
    print_out("\n[\\fIOPTION\\fR...] ");
    write_text(c->args);
    print_out("\n");
}

/* runs: it can be interrupted; trains: and be resumed. */
static void put_tail(bool runs, bool trains)
{
    print_out(".SH \"EXIT STATUS\"\n0 done; 1 failed, with one sentence on standard error; 2 wrong usage");
    if (trains) print_out("; 75 ended by SIGTERM or 'manta stop', to be gone on with by \\-\\-resume");
    print_out(runs ? "; 130 interrupted.\n" : ".\n");
    print_out(
        ".SH ENVIRONMENT\n"
        ".TP\n.B MANTA_DATA\nA folder in which named datasets are looked for first.\n"
        ".TP\n.B MANTA_LOG\nWhat is logged on standard error: debug, info, warn, error or off; then, after a "
        "comma, "
        "json for one object a line.\n"
        ".TP\n.B MANTA_STORAGE\nWhere runs lie, a folder or s3://BUCKET/PREFIX. For S3: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL as ever; "
        "MANTA_S3_TIMEOUT_S, how long one operation is tried (60); MANTA_S3_ANONYMOUS=1 signs nothing; "
        "MANTA_STORAGE_UNLOCKED=1 accepts a server on which two runs could write to one place. All of it is "
        "in "
        "docs/storage.md.\n"
        ".TP\n.B MANTA_UNPACK_MAX\nA part of a packed file may unpack to so much, as 64M or 2G, and to no "
        "more. When not "
        "set: to 256M, to more when that is at most 100 times what lies in the file, and never to more than "
        "the memory of the machine.\n"
        ".TP\n.B NO_COLOR\nWhen set, no colours are used.\n"
        ".TP\n.B XDG_CACHE_HOME\nWhere fetched datasets are kept, under manta/data; ~/.cache when not "
        "set.\n");
}

static void put_see_also(const char *but)
{
    char last[32] = "";

    print_out(".SH \"SEE ALSO\"\n");
    if (strcmp(but, "manta")) print_out(".BR manta (1)\n");
    for (int i = 0; command_at(i); i++) {
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(command_at(i)->name, " "), command_at(i)->name);
        if (strcmp(word, last) && strcmp(word, but)) print_out(".BR manta\\-%s (1)\n", word);
        memcpy(last, word, sizeof last);
    }
}

/* ---- pages ---- */

static void page_manta(void)
{
    put_head("manta", "Train neural networks");
    print_out(".SH SYNOPSIS\n.B manta\n\\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n.br\n"
              ".B manta\n\\-\\-help | \\-\\-version\n.SH DESCRIPTION\n"
              "Trains neural networks, evaluates them and looks inside them. Results go to standard output, "
              "messages to "
              "standard error.\n.SH COMMANDS\n");
    for (int i = 0; command_at(i); i++) {
        print_out(".TP\n\\fBmanta %s\\fR\n", command_at(i)->name);
        write_text(command_at(i)->about);
        print_out(".\n");
    }
    put_tail(true, true);
    put_see_also("manta");
}

static bool belongs_to_family(const command *c, const char *family)
{
    size_t n = strlen(family);

    return !strncmp(c->name, family, n) && (!c->name[n] || c->name[n] == ' ');
}

/* The page of a command, or of all commands whose first word is `family`. */
static bool page_family(const char *family)
{
    char name[64];
    const command *first = NULL;
    int n = 0;

    for (int i = 0; command_at(i); i++) {
        if (!belongs_to_family(command_at(i), family)) continue;
        if (!first) first = command_at(i);
        n++;
    }
    if (!n) return false;
    snprintf(name, sizeof name, "manta-%s", family);
    put_head(name, !strcmp(family, "data") ? "Find and fetch datasets" : first->about);
    print_out(".SH SYNOPSIS\n");
    for (int i = 0; command_at(i); i++) {
        if (!belongs_to_family(command_at(i), family)) continue;
        if (command_at(i) != first) print_out(".br\n");
        put_synopsis(command_at(i));
    }
    for (int i = 0; command_at(i); i++) {
        const command *c = command_at(i);
        if (!belongs_to_family(c, family)) continue;
        if (n > 1) {
            print_out(".SH \"MANTA %s\"\n", c->name);
            write_text(c->about);
            print_out(".\n.PP\n");
        } else {
            print_out(".SH DESCRIPTION\n");
        }
        put_command(c);
        if (c->examples) {
            print_out(n > 1 ? ".SS Examples\n" : ".SH EXAMPLES\n");
            put_examples(c->examples);
        }
    }
    put_tail(strcmp(family, "inspect") && strcmp(family, "model") && strcmp(family, "bench"),
             !strcmp(family, "train"));
    put_see_also(family);
    return true;
}

bool man_print(const char *name)
{
    if (strcmp(name, "manta")) return page_family(name);
    page_manta();
    return true;
}
