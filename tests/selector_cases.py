"""What holds for a device of driver `d` with `name` "fish" and `count` 3, by library of CEL.

Each sentence is what the library's documentation says of a function.
"""

A = 'device.attributes["d"]'

HOLDS = {
    # Optional types
    "a field that is there has a value": f'{A}.?name.hasValue() && {A}.?name.value() == "fish"',
    "a field that is missing is none": f"!{A}.?nope.hasValue() && {A}.?nope == optional.none()",
    "a missing field has a default": f'{A}.?nope.orValue("x") == "x" && {A}.?count.orValue(0) == 3',
    "the default is worked out only if needed": f"{A}.?count.orValue(1 / 0) == 3",
    "one optional stands in for another": f"{A}.?nope.or({A}.?count).value() == 3",
    "the second is worked out only if needed": f"{A}.?count.or(optional.of(1 / 0)).value() == 3",
    "an optional index": f'{A}[?"name"].value() == "fish" && [1][?1] == optional.none()',
    "an optional passes on through fields": "{'a': {'b': 1}}.?a.b == optional.of(1)",
    "none passes on through fields": "!{'a': {'b': 1}}.?x.b.hasValue()",
    "an optional passes on through an index": "optional.of([5])[0].value() == 5",
    "an unknown domain is an empty map, even optionally": "device.attributes[?'nope'].hasValue()",
    "an optional index out of range": "![1][?1].hasValue() && ![1][?-1].hasValue()",
    "optional items of a list": "[?optional.of(1), ?optional.none(), 2] == [1, 2]",
    "optional entries of a map": "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
    "a zero value is none": "[optional.ofNonZeroValue(0), optional.ofNonZeroValue(5)] == "
    "[optional.none(), optional.of(5)]",
    "a value is transformed": "optional.of(2).optMap(x, x * 2).value() == 4",
    "none is not transformed": "!optional.none().optMap(x, 1 / 0).hasValue()",
    "a value is transformed to an optional": "optional.of([7]).optFlatMap(x, x[?0]).value() == 7",
    "presence in an optional": "has({'a': {'b': 1}}.?a.b) && !has({'a': {'b': 1}}.?x.b)",
    # Bindings
    "a binding": "cel.bind(x, 3, x + x) == 6",
    "a binding in a binding": "cel.bind(x, 3, cel.bind(y, x + 1, x * y)) == 12",
    "a binding hides one of the same name": "cel.bind(x, 3, cel.bind(x, x + 1, x) + x) == 7",
    # Two-variable comprehensions
    "all over a map, by key and value": "{'a': 1, 'b': 2}.all(k, v, k != '' && v > 0)",
    "all over a list, by index and value": "[0, 1, 2].all(i, v, i == v)",
    "exists by two variables": "{'a': 1}.exists(k, v, k == 'a' && v == 1)",
    "exists one by two variables": "[5, 6].existsOne(i, v, i == 1) && [5].exists_one(i, v, v == 5)",
    "a list made by two variables": "[5, 6].transformList(i, v, i + v) == [5, 7]",
    "a list made and filtered": "[5, 6].transformList(i, v, i > 0, v) == [6]",
    "a map made of a map": "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
    "a map made of a list and filtered": "[5, 6].transformMap(i, v, i > 0, v) == {1: 6}",
    "a map made entry by entry": "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
    "attributes by id and value": f'{A}.exists(id, value, id == "count" && value == 3)',
    # Sets
    "a set contains another": "sets.contains([1, 2, 3], [2, 2]) && !sets.contains([1], [2])",
    "the empty set is contained": "sets.contains([1], []) && sets.contains([], [])",
    "sets are equivalent": "sets.equivalent([1, 2], [2, 1, 1]) && "
    "!sets.equivalent([1], [1, 2]) && !sets.equivalent([1, 2], [1])",
    "sets intersect": "sets.intersects([1, 2], [2]) && !sets.intersects([1], [])",
    # Lists of Kubernetes
    "a list is sorted": "[1, 2, 2].isSorted() && [].isSorted() && !['b', 'a'].isSorted()",
    "a sum": "[1, 3].sum() == 4 && [].sum() == 0 && [0.5, 0.5].sum() == 1.0",
    "a sum of durations": "[duration('1m'), duration('1s')].sum() == duration('61s')",
    "the smallest and the largest": "[3, 1, 2].min() == 1 && ['a', 'c'].max() == 'c'",
    "where an item is": "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2",
    "where an item is not": "[1].indexOf(9) == -1 && [1].lastIndexOf(9) == -1",
    # ext.Lists
    "a slice": "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []",
    "flatten": "[[1], [2, 3]].flatten() == [1, 2, 3]",
    "flatten deeply": "[[[1]], [[2, 3]]].flatten(2) == [1, 2, 3]",
    "sort": "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
    "sort by a key": "[{'n': 2}, {'n': 1}].sortBy(e, e.n)[0].n == 1",
    "sort by a key keeps the order of equals": "['bb', 'a', 'cc'].sortBy(s, s.size())[1] == 'bb'",
    "reverse": "[1, 2, 3].reverse() == [3, 2, 1]",
    "distinct": "[1, 2, 2, 1].distinct() == [1, 2] && [true, true].distinct() == [true]",
    "first and last": "[1, 2].first().value() == 1 && [1, 2].last().value() == 2",
    "the first of none": "![].first().hasValue() && ![].last().hasValue()",
    "a range": "lists.range(3) == [0, 1, 2] && lists.range(0) == []",
    # Regex
    "find": "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "find all": "'123 abc 456'.findAll('[0-9]+') == ['123', '456']",
    "find some": "'1 2 3'.findAll('[0-9]', 2) == ['1', '2'] && '1'.findAll('[0-9]', 0) == []",
    "matches as a function": "matches('abc', '^a.c$') && !'abc'.matches('^b')",
    "a pattern sees characters": "'é'.matches('^.$') && 'aéb'.find('é.') == 'éb'",
    "an empty match counts unless it touches the one before": "'12 ab'.findAll('[0-9]*') == "
    "['12', '', '', '']",
    # Quantity
    "a quantity":
    "isQuantity('1.3Gi') && !isQuantity('1.3GiB') && quantity('1k').asInteger() == 1000",
    "quantities are compared": "quantity('50k').compareTo(quantity('50000')) == 0 && "
    "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1m').isLessThan(quantity('1'))",
    "quantities are equal by amount": "quantity('1Gi') == quantity('1024Mi')",
    "quantities are added": "quantity('50k').add(20) == quantity('50020') && "
    "quantity('50k').sub(quantity('20k')) == quantity('30k')",
    "the sign of a quantity": "sign(quantity('-5')) == -1 && sign(quantity('0')) == 0",
    "a quantity as a number": "quantity('1500m').asApproximateFloat() == 1.5 && "
    "!quantity('1500m').isInteger()",
    # Semver
    "a version":
    "isSemver('1.0.0') && !isSemver('1.0') && !isSemver('01.0.0') && !isSemver('v1.0.0')",
    "a version that is normalised":
    "semver('v1.2', true) == semver('1.2.0') && isSemver('01.1.1', true)",
    "versions are compared": "semver('1.2.3').compareTo(semver('1.10.0')) == -1 && "
    "semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
    "build metadata is ignored": "semver('1.0.0+a') == semver('1.0.0+b')",
    "parts of a version": "semver('1.2.3').major() == 1 && semver('1.2.3').patch() == 3",
    # Strings: the edges are in test_cel_library
    "strings count characters": "'tacocat'.substring(4) == 'cat' && '日本語'.charAt(1) == '本'",
    "strings are searched": "'日本日'.lastIndexOf('日') == 2 && '日本'.size() == 2",
    "strings are changed": "'Hello'.lowerAscii() == 'hello' && ' x '.trim() == 'x' && "
    "'aXa'.replace('a', 'b', 1) == 'bXa' && 'a,b'.split(',') == ['a', 'b'] && "
    "['a', 'b'].join('-') == 'a-b' && 'é'.upperAscii() == 'é'",
    "a string is quoted": r"""strings.quote('a"b\n') == '"a\\"b\\n"'""",
    # String format
    "format of simple values": "'%s %d %%'.format(['x', 3]) == 'x 3 %'",
    "format of a list": """'%s'.format([['a', 3.14, null, [9], true]]) == """
    """'["a", 3.140000, null, [9], true]'""",
    "format of a map": """'%s'.format([{'b': b'x', 'a': 2}]) == '{"a":2, "b":b"x"}'""",
    "format of times in a list": """'%s'.format([[duration('2h')]]) == '[duration("7200s")]'""",
    "format of numbers": "'%.3f %f'.format([1.2345, 12345.5]) == '1.234 12,345.500000'",
    "format with an exponent": "'%.6e'.format([1052.032911275]) == "
    "'1.052033\u202f\u00d7\u202f10⁰³'",
    "format of numbers as text": "'%s %s'.format([2.71, 0.000000002]) == '2.71 2e-09'",
    "format in other bases": "'%b %o %x %X'.format([5, 8, 255, 255]) == '101 10 ff FF'",
    "format of text in hexadecimal": "'%x'.format(['hi']) == '6869' && '%b'.format([true]) == '1'",
    "format of infinities": "'%f %s'.format([1.0 / 0.0, -1.0 / 0.0]) == '∞ -Inf'",
    "format of infinities by name": "'%f %e'.format(['NaN', '-Infinity']) == 'NaN -∞'",
    "format of times":
    "'%s %s'.format([timestamp('2023-02-03T23:31:20+00:00'), duration('1h45m47s')])"
    " == '2023-02-03T23:31:20Z 6347s'",
    # IP
    "an address": "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP('01.2.3.4')",
    "what is no address for Kubernetes": "!isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
    "addresses are equal by value": "ip('2001:db8::abc') == ip('2001:DB8:0::0abc')",
    "an address in canonical form": "ip.isCanonical('2001:db8::abcd') && "
    "!ip.isCanonical('2001:DB8::ABCD') && string(ip('2001:DB8::1')) == '2001:db8::1'",
    "the family": "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
    "unspecified and loopback": "ip('0.0.0.0').isUnspecified() && ip('::1').isLoopback() && "
    "!ip('127.0.0.1').isUnspecified()",
    "link-local addresses":
    "ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()"
    " && ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast()",
    "addresses that are not link-local": "!ip('224.0.1.1').isLinkLocalMulticast() && "
    "!ip('fd80::1').isLinkLocalUnicast() && !ip('ff05::1').isLinkLocalMulticast()",
    "global addresses":
    "ip('192.168.0.1').isGlobalUnicast() && ip('2001:db8::abcd').isGlobalUnicast()"
    " && !ip('255.255.255.255').isGlobalUnicast() && !ip('ff00::1').isGlobalUnicast()",
    # CIDR
    "a network": "isCIDR('192.168.0.0/24') && !isCIDR('192.168.0.0') && !isCIDR('10.0.0.0/33')",
    "a network has addresses": "cidr('192.168.0.0/24').containsIP(ip('192.168.0.1')) && "
    "!cidr('192.168.0.0/24').containsIP('192.168.1.1')",
    "a network has networks": "cidr('192.168.0.0/24').containsCIDR(cidr('192.168.0.0/25')) && "
    "!cidr('192.168.0.0/24').containsCIDR('192.168.0.0/23')",
    "parts of a network": "cidr('192.168.1.5/24').prefixLength() == 24 && "
    "cidr('192.168.1.5/24').ip() == ip('192.168.1.5') && cidr('::1/128').ip().family() == 6",
    "a network without the rest of the address": "cidr('192.168.1.5/24').masked() == "
    "cidr('192.168.1.0/24') && string(cidr('192.168.1.0/24')) == '192.168.1.0/24'",
    # URL
    "a URL": "isURL('https://example.com:80/path') && isURL('/path') && !isURL('../path')",
    "what is no URL": "!isURL('https://a b.com/') && !isURL('') && !isURL('http://a:x/')",
    "parts of a URL": "url('https://example.com:80/a%20b?k=1').getScheme() == 'https' && "
    "url('https://example.com:80/').getHost() == 'example.com:80' && "
    "url('https://example.com:80/').getHostname() == 'example.com' && "
    "url('https://example.com:80/').getPort() == '80'",
    "parts of a URL with an address": "url('https://[::1]:80/').getHostname() == '::1' && "
    "url('https://[::1]:80/').getHost() == '[::1]:80' && url('/path').getHost() == ''",
    "the path, escaped": "url('https://a/b%20c').getEscapedPath() == '/b%20c' && "
    "url('https://a/b c').getEscapedPath() == '/b%20c'",
    "the query": "url('https://a/?k=a&k=b&x=c%20d+e').getQuery() == "
    "{'k': ['a', 'b'], 'x': ['c d e']}",
    "URLs are equal as they are written": "url('https://a/') == url('https://a/') && "
    "url('https://a/') != url('https://b/')",
    # Format
    "a valid label": "!format.dns1123Label().validate('my-name').hasValue()",
    "an invalid label": "format.dns1123Label().validate('My.Name').value().size() == 1",
    "a format by its name": "format.named('uuid').hasValue() && !format.named('nope').hasValue()",
    "names": "!format.dns1123Subdomain().validate('a.b').hasValue() && "
    "format.dns1035Label().validate('1a').hasValue() && "
    "!format.qualifiedName().validate('example.com/MyName').hasValue() && "
    "format.qualifiedName().validate('a/b/c').hasValue() && "
    "!format.labelValue().validate('').hasValue()",
    "prefixes of names": "!format.dns1123LabelPrefix().validate('a-').hasValue() && "
    "!format.dns1123SubdomainPrefix().validate('a.b-').hasValue() && "
    "format.dns1035LabelPrefix().validate('1a-').hasValue()",
    "other formats": "!format.uri().validate('https://a/').hasValue() && "
    "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && "
    "!format.byte().validate('aGk=').hasValue() && format.byte().validate('?').hasValue() && "
    "!format.date().validate('2021-01-31').hasValue() && "
    "format.date().validate('2021-02-31').hasValue()"
    " && !format.datetime().validate('2021-01-31T00:00:00Z').hasValue()",
    "a label that is too long": "format.dns1123Label().validate('a'.replace('a', '%s'.format(["
    "'0123456789012345678901234567890123456789012345678901234567890123'])))"
    ".orValue([]).exists(m, m == 'must be no more than 63 characters')",
    # The standard library
    "sizes": "size('é') == 1 && 'ab'.size() == 2 && size(b'é') == 2 && size({'a': 1}) == 1",
    "conversions to numbers":
    "int(2.9) == 2 && int('-3') == -3 && uint(3) == 3u && double('1e3') == 1000.0",
    "conversions to text": "string(1.5) == '1.5' && string(3u) == '3' && string(b'a') == 'a' && "
    "string(duration('90s')) == '90s' && string(true) == 'true'",
    "doubles as text": "string(1000000.0) == '1e+06' && string(123456.0) == '123456' && "
    "string(0.0001) == '0.0001' && string(0.00001) == '1e-05' && string(-0.0) == '-0' && "
    "string(123456789.5) == '1.234567895e+08' && string(0.0) == '0'",
    "other conversions": "bool('true') && bytes('é') == b'é' && bytes('é') == b'\\303\\251'",
    "types as values":
    "type(1) == int && type('a') != int && type([]) == list && type(null) == null_type",
    "a timestamp's parts": "timestamp('2023-12-25T10:20:30.5Z').getFullYear() == 2023 && "
    "timestamp('2023-12-25T10:20:30Z').getMonth() == 11 && "
    "timestamp('2023-12-25T10:20:30Z').getDayOfWeek() == 1 && "
    "timestamp('2023-12-25T10:20:30Z').getDate() == 25 && "
    "timestamp('2023-12-25T10:20:30Z').getDayOfMonth() == 24 && "
    "timestamp('2023-12-25T10:20:30Z').getDayOfYear() == 358",
    "a timestamp in another zone": "timestamp('2023-12-25T00:00:00Z').getHours('-08:00') == 16 && "
    "timestamp('2023-12-25T00:00:00Z').getHours() == 0",
    "a duration's lengths":
    "duration('1h1m').getMinutes() == 61 && duration('1.5s').getMilliseconds() == 1500"
    " && duration('-90m').getHours() == -1",
    "times are calculated": "timestamp('2023-01-01T00:00:00Z') + duration('24h') == "
    "timestamp('2023-01-02T00:00:00Z') && timestamp('2023-01-02T00:00:00Z') - "
    "timestamp('2023-01-01T00:00:00Z') == duration('24h')",
    "times are compared":
    "timestamp('2023-01-01T01:00:00+01:00') == timestamp('2023-01-01T00:00:00Z') && "
    "duration('1m') > duration('59s') && int(timestamp('1970-01-01T00:01:00Z')) == 60",
    "a condition": "(1 > 2 ? 'a' : 'b') == 'b'",
    "numbers of three types": "dyn(1) == 1.0 && 1u < 1.5 && 2 > 1u && 1.0 <= 1u && dyn(1u) == 1",
    "a key is found by any number":
    "{1: 'a'}[dyn(1u)] == 'a' && {1: 'a'}[dyn(1.0)] == 'a' && dyn(1u) in {1: 'a'}",
    "true is no key 1": "!(dyn(true) in {1: 'a'}) && {true: 'a'}[true] == 'a'",
    "true is not 1 in a list": "!(dyn(true) in [1]) && [true, false].distinct().size() == 2",
    "the smallest integer":
    "-9223372036854775808 < 0 && -9223372036854775808 == int('-9223372036854775808')",
    "bytes and lists are joined":
    "b'a' + b'b' == b'ab' && [1] + [2] == [1, 2] && 'a' + 'b' == 'ab'",
    "escapes in strings":
    r"""'\u00e9\x41\101\n'.size() == 4 && r'\n'.size() == 2 && '''a'b'''.size() == 3""",
    "a name that starts like a literal":
    "[1].all(trueish, trueish == 1) && [1].all(nullable, true)",
    "trailing commas": "[1, 2,] == [1, 2] && {'a': 1,} == {'a': 1}",
    "a word of the language as a field":
    "{'in': 1, 'package': 2}.in == 1 && {'package': 2}.package == 2",
}  # fmt: skip
