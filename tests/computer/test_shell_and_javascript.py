"""The shell and JavaScript: state, output, errors, how they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamkit.computer import Computer

from .running import TracedComputer, language, run, stop_at, traced_computer


@pytest.fixture(scope="module")
def shared() -> Iterator[TracedComputer]:
    with traced_computer() as traced:
        yield traced


@pytest.fixture
def computer(shared: TracedComputer) -> Computer:
    return shared.computer


SHELL = [
    ("no-such-command", "bash: no-such-command: command not found\n", 127),
    ("false", "", 1),
    ("", "", 0),
    ("printf 'no newline'", "no newline", 0),
    ("cat; read x; echo \"[$x]\"", "[]\n", 0),
    ("for i in 1 2; do\n  echo $i\ndone", "1\n2\n", 0),
    ("cat <<END\na\n  b\nEND", "a\n  b\n", 0),
    ("exec 5>&1; echo five >&5; exec 5>&-", "five\n", 0),
    ("echo back & wait", "back\n", 0),
    ("return 4", "", 4),
    ("echo 'a!b' \"c!d\"", "a!b c!d\n", 0),
    ("bash -c 'echo [$PS1$PROMPT_COMMAND]; ls /proc/self/fd'", "[]\n0\n1\n2\n3\n", 0),
    (f"x='{'y' * 1_000_000}'; echo ${{#x}}", "1000000\n", 0),
]  # fmt: skip
JAVASCRIPT = [
    ("console.log('out'); console.error('err'); console.log('again')", "out\nerr\nagain\n"),
    ("1 + 1", "2\n"),
    ("({ a: [1, 'x'] })", "{ a: [ 1, 'x' ] }\n"),
    ("undefined", ""),
    ("let a = 1", ""),
    ("", ""),
    ("await new Promise((done) => setTimeout(done, 20)); 'waited'", "'waited'\n"),
    ("setTimeout(() => console.log('later'), 20)", "later\n"),
    ("async function main() { await null; console.log('main') } main()", "main\n"),
    ("Promise.resolve(5)", "5\n"),
    ("process.stdout.write('no newline')", "no newlinetrue\n"),
    ("require('child_process').execSync('echo child', { stdio: 'inherit' }); 0", "child\n0\n"),
    ("require('child_process').spawnSync('sh', ['-c', 'echo to err >&2'], { stdio: 'inherit' }).status", "to err\n0\n"),
    (
        "console.error('err'); require('child_process').spawnSync('echo', ['to out'], { stdio: 'inherit' }); console.log(1)",
        "err\nto out\n1\n",
    ),
    ("typeof require('fs').readFileSync", "'function'\n"),
    (f"'{'y' * 1_000_000}'.length", "1000000\n"),
    ("require('child_process').execSync('ls /proc/self/fd').toString()", "'0\\n1\\n2\\n3\\n'\n"),
    ("-0", "-0\n"),
    ("10n ** 20n", "100000000000000000000n\n"),
    ("require('child_process').exec('echo child', (error, out) => console.log('callback', out))", "callback child\n\n"),
    ("require('child_process').exec('echo child')", ""),
    (
        "const c = require('child_process').spawn('sleep', ['0.05']); c.on('exit', (code) => console.log('exit', code)); 0",
        "0\nexit 0\n",
    ),
    (
        "const o = require('child_process').spawn('echo', ['child']); o.stdout.on('data', (data) => console.log(`${data}`)); 0",
        "0\nchild\n\n",
    ),
    (
        "(async () => { await require('fs').promises.readFile('/dev/null'); console.log('read') })(); console.log('end')",
        "end\nread\n",
    ),
    ("require('fs').readFile('/dev/null', (error, data) => console.log('read', data.length)); 0", "0\nread 0\n"),
    (
        "let n = 0; const t = setInterval(() => { console.log(n); if (++n === 3) clearInterval(t) }, 2); undefined",
        "0\n1\n2\n",
    ),
    ("(async () => { await require('timers/promises').setTimeout(20); console.log('slept') })(); 0", "0\nslept\n"),
    ("let i = 0; const again = () => { if (++i < 5000) setImmediate(again); else console.log(i) }; again()", "5000\n"),
    ("require('zlib').gzip('x'.repeat(1e6), () => console.log('compressed')); 0", "0\ncompressed\n"),
    ("require('crypto').pbkdf2('a', 'b', 9999, 64, 'sha512', () => console.log('derived')); 0", "0\nderived\n"),
    (
        "const w = new (require('worker_threads').Worker)('console.log(1)', { eval: true }); w.on('exit', () => console.log('over')); 0",
        "0\n1\nover\n",
    ),
    ("require('dns').lookup('127.0.0.1', (error, address) => console.log(address)); undefined", "127.0.0.1\n"),
    ("new Promise(() => {}); 5", "5\n"),
    ("setInterval(() => {}, 1e6).unref(); setTimeout(() => {}, 1e6).unref(); 1", "1\n"),
    ("class Emitter extends require('events') {} ; new Emitter().constructor.name", "'Emitter'\n"),
    ("JSON.stringify('\U0001f600')", "'\"\U0001f600\"'\n"),
]


@pytest.mark.parametrize(
    ("name", "code", "text", "exit_code"), [language("shell", *case, id=case[0][:30]) for case in SHELL]
)
def test_the_shell_prints_what_bash_would(computer: Computer, name: str, code: str, text: str, exit_code: int) -> None:
    """With the exit status of the last command."""
    ran = run(computer, name, code)
    assert (ran.text, ran.execution.exit_code) == (text, exit_code)
    assert ran.status == ("failed" if exit_code else "completed")


def test_the_shell_prints_stderr_too(computer: Computer) -> None:
    """In which order is not certain: the two come over pipes of their own."""
    ran = run(computer, "shell", "echo out; echo err >&2")
    assert sorted(ran.text.splitlines()) == ["err", "out"]


@pytest.mark.parametrize(
    ("name", "code", "text"), [language("javascript", *case, id=case[0][:30]) for case in JAVASCRIPT]
)
def test_javascript_prints_its_output_and_its_value(computer: Computer, name: str, code: str, text: str) -> None:
    """As node's own read-eval-print loop does; promises are awaited."""
    ran = run(computer, name, code)
    assert (ran.text, ran.status) == (text, "completed")


SERVER = (
    "const server = require('http').createServer((request, response) => response.end('answer'));"
    "server.listen(0, () => console.log('listens')); setInterval(() => {}, 1000); 0"
)


@pytest.mark.parametrize(
    ("name", "code"),
    [language("shell", "echo 1\nsleep 0.1\necho 2"), language("javascript", "console.log(1);\nconsole.log(2);")],
)
def test_the_line_that_runs_is_known_of_python_alone(computer: Computer, name: str, code: str) -> None:
    """The guide says so."""
    ran = run(computer, name, code)
    assert (ran.text.split()[:2], ran.lines) == (["1", "2"], [None])  # nothing runs any more


@pytest.mark.parametrize(("name",), [language("javascript")])
def test_a_server_lives_on_beside_later_runs(name: str) -> None:
    """No run waits for it, nor for the intervals of its own run; a later one can use it, and waits for the answer."""
    ask = (
        "fetch(`http://127.0.0.1:${server.address().port}`).then((r) => r.text()).then((text) => console.log(text)); 0"
    )
    with traced_computer(timeout=20) as traced:
        assert run(traced.computer, name, SERVER).text in ("0\nlistens\n", "listens\n0\n")
        for _ in range(2):
            assert run(traced.computer, name, ask).text == "0\nanswer\n"
        assert run(traced.computer, name, "console.log('next')").text == "next\n"


WAITING = [
    language("javascript", "setInterval(() => console.log('ready'), 5); 0", id="interval"),
    language("javascript", "require('child_process').spawn('sh', ['-c', 'echo ready; sleep 600'], { stdio: 'inherit' })", id="child"),
    language("javascript", "new (require('worker_threads').Worker)(`console.log('ready'); for (;;);`, { eval: true })", id="thread"),
    language("javascript", "const s = require('net').createServer().listen(0, () => { require('net').connect(s.address().port, () => console.log('ready')) })", id="connection"),
    language("javascript", "(async () => { console.log('ready'); for (;;) await require('timers/promises').setTimeout(1) })(); 0", id="timers"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code"), WAITING)
def test_a_run_that_waits_for_what_it_opened_can_be_interrupted(name: str, code: str) -> None:
    """It keeps its state, and nothing of it goes on."""
    with traced_computer() as traced:
        run(traced.computer, name, "let before = 5")
        ran, _ = stop_at(traced.computer, name, code)
        assert (ran.status, ran.execution.state_lost) == ("interrupted", False), ran.text
        assert run(traced.computer, name, "before").text == "5\n"
        assert [line for line in traced.processes() if line.endswith("sleep 600")] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name",), [language("javascript")])
def test_the_timers_of_a_run_are_not_those_of_an_interrupted_one(name: str) -> None:
    """Even if that was terminated while it waited for a program."""
    hang = "console.log('ready'); require('child_process').spawnSync('sleep', ['600'])"
    with traced_computer(timeout=20) as traced:
        for _ in range(8):
            ran, _ = stop_at(traced.computer, name, hang)
            assert ran.status == "interrupted"
            again = run(traced.computer, name, "setTimeout(() => console.log('timer'), 5); console.log('hello')")
            assert (again.text, again.status) == ("hello\ntimer\n", "completed")


@pytest.mark.parametrize(
    ("name", "first", "second", "text"),
    [
        language("shell", "cd /usr; x=5; f() { echo f$x; }; export y=6", "pwd; f; sh -c 'echo $y'", "/usr\nf5\n6\n", id="shell"),
        language("shell", "set -euo pipefail; true", "false; echo on", "on\n", id="shell: options of a script end with it"),
        language("javascript", "const c = 1; let l = 2; var v = 3; function f() { return c }", "[c, l, v, f()]", "[ 1, 2, 3, 1 ]\n", id="javascript"),
        language("javascript", "const again = 1", "const again = 2; again", "2\n", id="javascript: declared anew"),
    ],
)  # fmt: skip
def test_state_lives_from_run_to_run(computer: Computer, name: str, first: str, second: str, text: str) -> None:
    """Directory, variables, functions."""
    assert run(computer, name, first).text == ""
    assert run(computer, name, second).text == text


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        language("shell", "echo a\nif then", "line 2: syntax error", id="shell: syntax"),
        language("shell", "echo \0", "null character", id="shell: null"),
        language("shell", "echo \ud800", "surrogate", id="shell: surrogate"),
        language("javascript", "\n\nthrow new RangeError('boom')", "RangeError: boom\n    at cell-", id="js: error"),
        language("javascript", "let x = ;", "SyntaxError", id="js: syntax"),
        language("javascript", "Promise.reject(new Error('late'))", "Error: late", id="js: rejected"),
        language("javascript", "setTimeout(() => { throw new TypeError('in a timer') }, 5)", "TypeError: in a timer", id="js: timer"),
        language("javascript", "throw 'text'", "Uncaught 'text'", id="js: no error"),
        language("javascript", "'\ud800'", "surrogate", id="js: surrogate"),
    ],
)  # fmt: skip
def test_errors_are_printed(computer: Computer, name: str, code: str, words: str) -> None:
    """And the next run works."""
    ran = run(computer, name, code)
    assert (ran.status, words in ran.text) == ("failed", True), ran.text
    assert run(computer, name, {"shell": "echo on", "javascript": "console.log('on')"}[name]).text == "on\n"


@pytest.mark.parametrize(("name",), [language("javascript")])
def test_an_error_of_javascript_has_the_line_numbers_of_the_code(computer: Computer, name: str) -> None:
    """Frames of node and of the runner are left out."""
    ran = run(computer, name, "function f() {\n  throw new RangeError('boom');\n}\n\nf();")
    assert ran.execution.error is not None
    assert ran.execution.error[:2] == ("RangeError", "boom")
    assert ":2:" in ran.text and ":5:" in ran.text
    assert "node:" not in ran.text


@pytest.mark.parametrize(
    ("name", "code"),
    [
        language("shell", "exit 1", id="shell: exit"),
        language("javascript", "process.exit(1); console.log('never')", id="javascript: exit"),
    ],
)
def test_code_that_ends_its_process_fails_and_loses_the_state(name: str, code: str) -> None:
    """Its status is `failed`, not `died`, for it ended on purpose."""
    with traced_computer() as traced:
        ran = run(traced.computer, name, code)
        assert (ran.status, ran.execution.exit_code, ran.execution.state_lost) == ("failed", 1, True)
        assert "never" not in ran.text
        assert "exit status 1" in ran.text


ENDS_EARLY = [
    ("set -e\nkept=new; false\necho never", 1, ""),
    ("set -euo pipefail\nkept=new; echo $missing", 1, "bash: missing: unbound variable\n"),
    ("set -o errexit\nkept=new; f() { false; }; f; echo never", 1, ""),
    ("set -ex\nkept=new 2>/dev/null; exit 7", 7, "++ kept=new\n++ exit 7\n"),
]


@pytest.mark.parametrize(
    ("name", "code", "exit_code", "text"), [language("shell", *case, id=case[0][:20]) for case in ENDS_EARLY]
)
def test_a_script_that_ends_at_its_first_error_keeps_the_state(name: str, code: str, exit_code: int, text: str) -> None:
    """Of earlier runs, and its own: variables, functions, aliases, the directory. Its options end with it."""
    with traced_computer() as traced:
        computer = traced.computer
        run(computer, name, "array=(1 'x y'); say() { echo \"$1 ${array[1]}\"; }; alias hello='echo alias'; cd /usr")
        ran = run(computer, name, f"cd /tmp; {code}")
        assert (ran.status, ran.execution.exit_code, ran.execution.state_lost) == ("failed", exit_code, False)
        assert ran.text == text
        again = run(computer, name, 'say $kept; hello; echo $PWD; false; echo "$missing on"')
        assert again.text == "new x y\nalias\n/tmp\n on\n"


@pytest.mark.parametrize(("name",), [language("shell")])
def test_the_options_of_a_script_end_with_it(name: str) -> None:
    """Each of them would surprise the next."""
    with traced_computer() as traced:
        for option in ("-x", "-v", "-f", "-n", "-u", "-C", "-a", "-k", "-o pipefail", "-o posix", "+h", "+B"):
            run(traced.computer, name, f"set {option}")
            ran = run(traced.computer, name, "echo {a,b} $-; shopt -o posix pipefail")
            assert ran.text == "a b hiBs\nposix          \toff\npipefail       \toff\n"


@pytest.mark.parametrize(("name",), [language("shell")])
def test_a_script_with_set_e_can_be_interrupted(name: str) -> None:
    """The state of earlier runs is there."""
    with traced_computer() as traced:
        run(traced.computer, name, "x=5")
        ran, _ = stop_at(traced.computer, name, "set -e; echo ready; sleep 600; echo never")
        assert (ran.status, ran.execution.state_lost, "never" in ran.text) == ("interrupted", False, False)
        assert run(traced.computer, name, "echo $x").text == "5\n"


@pytest.mark.parametrize(
    ("name", "code", "exit_code"),
    [
        language("shell", "kill -INT $$; echo never", 130, id="shell: interrupts itself"),
        language("shell", "alias printf=false builtin=false .=false", 0, id="shell: aliases"),
        language("javascript", "globalThis.JSON = null", None, id="javascript: replaces a global"),
    ],
)
def test_code_that_meddles_with_its_runner_still_ends(name: str, code: str, exit_code: int | None) -> None:
    """And so does the next run."""
    with traced_computer(timeout=10) as traced:
        ran = run(traced.computer, name, code)
        assert "never" not in ran.text
        assert (ran.status, ran.execution.exit_code) == ("failed" if exit_code else "completed", exit_code)
        again = run(traced.computer, name, "echo on" if name == "shell" else "console.log('on')")
        assert (again.text, again.status) == ("on\n", "completed")
